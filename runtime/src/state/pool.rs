//! The pool of fixed state: two banks per tensor, a zero row, and who owns which slot.

use super::capture::{CaptureKind, row_elements, wrong};
use super::commit::Committer;
use super::error::{PoolError, StateError};
use super::handle::{PoolId, SlotHandle};
use super::image::RowBytes;
use super::layout::BankLayout;
use super::reservation::{FixedRow, StateReservation};
use super::slot::{Bank, Slot};
use crate::device::{Device, ElementType};
use crate::exec::CommitGraphs;
use crate::ids::RequestId;
use crate::model::spec::{FixedSpec, StateSpec, capture_capacity};
use crate::model::{FixedBuffers, Lost};
use crate::txn::{Permit, Seat};

/// Everything fixed of the resident requests of one decoder.
///
/// There is at most one live reservation: it borrows the pool. Committing and releasing need a [`Permit`], which
/// only the composite transaction makes.
#[derive(Debug)]
pub(crate) struct StatePool {
    pub(super) id: PoolId,
    pub(super) layout: BankLayout,
    pub(super) max_rows: usize,
    pub(super) tensors: Vec<Tensor>,
    pub(super) buffers: Vec<FixedBuffers>,
    pub(super) committer: Committer,
    pub(super) entries: Vec<Entry>,
}

/// One slot and how often it was handed back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) slot: Slot,
    /// Raised by every release, so that older handles are stale.
    pub(crate) generation: u64,
}

/// What the pool knows of one tensor.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub(super) spec: FixedSpec,
    /// What its checkpoints hold, where it has any.
    pub(super) kind: Option<CaptureKind>,
}

impl StatePool {
    /// Allocates banks `[2 * slots + 1, row...]` and checkpoint staging for steps of up to `max_rows` rows
    /// (at least `slots`; more where several candidate rows start from one slot). All memory of fixed state is
    /// allocated here. `graphs` commit kept prefixes where the host does not.
    ///
    /// # Errors
    /// When the specification contradicts itself, the extents do not fit int32 row indices, or the device refuses; also
    /// when there are checkpoints that neither the host can read nor a graph commits.
    pub(crate) fn with_commit(
        spec: &StateSpec,
        slots: usize,
        max_rows: usize,
        (device, graphs): (&dyn Device, Option<CommitGraphs>),
    ) -> Result<Self, PoolError> {
        if slots == 0 || max_rows < slots {
            return Err(PoolError::Extent { slots, max_rows });
        }
        let layout = BankLayout::new(slots).ok_or(PoolError::TooManySlots { slots })?;
        let mut tensors = Vec::with_capacity(spec.fixed.len());
        let mut buffers = Vec::with_capacity(spec.fixed.len());
        let committer = Committer::of(spec, device, graphs)?;
        for fixed in &spec.fixed {
            let kind = match &fixed.checkpoints {
                Some(checkpoints) => Some(CaptureKind::of(fixed, checkpoints)?),
                None => None,
            };
            row_elements(fixed)?;
            buffers.push(allocate(fixed, layout, max_rows, device)?);
            tensors.push(Tensor {
                spec: fixed.clone(),
                kind,
            });
        }
        let entries = vec![
            Entry {
                slot: Slot::Free,
                generation: 0
            };
            slots
        ];
        Ok(Self {
            id: PoolId::fresh(),
            layout,
            max_rows,
            tensors,
            buffers,
            committer,
            entries,
        })
    }

    /// With a host that commits.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn new(
        spec: &StateSpec,
        slots: usize,
        max_rows: usize,
        device: &dyn Device,
    ) -> Result<Self, PoolError> {
        Self::with_commit(spec, slots, max_rows, (device, None))
    }

    /// Slots, the number of requests that can be resident.
    pub(crate) fn slots(&self) -> usize {
        self.layout.slots()
    }

    /// Slots nobody owns.
    pub(crate) fn free_slots(&self) -> usize {
        self.entries
            .iter()
            .filter(|entry| entry.slot == Slot::Free)
            .count()
    }

    /// The most tokens a row may run when it captures: the smallest checkpoint count of the model, 0 when some tensor
    /// has no checkpoint output. Drafts per row are at most one less.
    pub(crate) fn capture_capacity(&self) -> usize {
        capture_capacity(self.tensors.iter().map(|tensor| &tensor.spec))
    }

    /// Starts a step over `rows`, in batch order. Dropping the result undoes it.
    ///
    /// # Errors
    /// [`StateError::NoFreeSlot`] when the admission can be tried later; other errors are mistakes of the caller.
    /// Nothing changes on error.
    pub(crate) fn reserve(
        &mut self,
        rows: &[FixedRow],
    ) -> Result<Seat<StateReservation<'_>>, StateError> {
        Ok(Seat::new(StateReservation::new(self, rows)?))
    }

    /// Tokens that the committed state of a slot has seen.
    ///
    /// # Errors
    /// Foreign and stale handles, and slots that hold no committed state.
    pub(crate) fn tokens(
        &self,
        request: RequestId,
        handle: SlotHandle,
    ) -> Result<usize, StateError> {
        match self.entry(request, handle)?.slot {
            Slot::Committed { tokens, .. } => Ok(tokens),
            Slot::Free | Slot::Reserved { .. } => Err(StateError::Stale(request)),
        }
    }

    /// The committed row of every tensor of a slot, in manifest order, as the bytes of its elements.
    ///
    /// # Errors
    /// As [`Self::tokens`]; also when the host cannot read the memory, or its states were lost.
    pub(crate) fn committed_rows(
        &self,
        request: RequestId,
        handle: SlotHandle,
    ) -> Result<Vec<RowBytes<'_>>, StateError> {
        let Slot::Committed { active, .. } = self.entry(request, handle)?.slot else {
            return Err(StateError::Stale(request));
        };
        let row = self.layout.row(active, handle.index);
        let rows = self.buffers.iter().enumerate();
        rows.map(|(tensor, buffers)| {
            let element = buffers.bank.element();
            let bytes = buffers
                .row(row)
                .map_err(|Lost| StateError::Lost { tensor })?;
            bytes
                .map(|bytes| RowBytes { element, bytes })
                .ok_or(StateError::Memory { tensor, row })
        })
        .collect()
    }

    /// Makes every state that is owed, where no operator will.
    pub(super) fn settle(&mut self) {
        self.buffers.iter_mut().for_each(FixedBuffers::settle);
    }

    /// Bank rows to which a state is owed although no slot has its committed state there.
    pub(crate) fn owed_to_nobody(&self) -> Vec<usize> {
        let active = |(index, entry): (usize, &Entry)| match entry.slot {
            Slot::Committed { active, .. } => Some(self.layout.row(active, index)),
            Slot::Free | Slot::Reserved { .. } => None,
        };
        let active: Vec<usize> = self.entries.iter().enumerate().filter_map(active).collect();
        let owed = self.buffers.iter().flat_map(|buffers| &buffers.owed);
        let rows = owed.map(|state| state.row);
        rows.filter(|row| !active.contains(row)).collect()
    }

    /// Checks that a handle may release its slot.
    ///
    /// # Errors
    /// Foreign and stale handles.
    pub(crate) fn validate_release(
        &self,
        request: RequestId,
        handle: SlotHandle,
    ) -> Result<(), StateError> {
        self.entry(request, handle).map(|_| ())
    }

    /// Frees a slot that [`Self::validate_release`] accepted. The rows are not cleared: a fresh admission reads the
    /// zero row. A handle that was not accepted changes nothing.
    pub(crate) fn release(&mut self, handle: SlotHandle, _permit: &Permit) {
        let entry = self.entries.get_mut(handle.index);
        if let Some(entry) = entry.filter(|e| e.generation == handle.generation) {
            entry.slot = Slot::Free;
            entry.generation = entry.generation.wrapping_add(1);
            // Whoever has the slot next writes its rows anew.
            for row in [Bank::Zero, Bank::One].map(|bank| self.layout.row(bank, handle.index)) {
                self.buffers
                    .iter_mut()
                    .for_each(|buffers| buffers.forget(row));
            }
        }
    }

    /// Gives a slot that [`Self::validate_release`] accepted to another request, which owns none. The handle stays
    /// good, for the new owner. A handle that was not accepted changes nothing.
    pub(crate) fn transfer(&mut self, handle: SlotHandle, to: RequestId, _permit: &Permit) {
        let entry = self.entries.get_mut(handle.index);
        if let Some(entry) = entry.filter(|e| e.generation == handle.generation)
            && let Slot::Committed { request, .. } = &mut entry.slot
        {
            *request = to;
        }
    }

    /// The slots as an audit sees them.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether every zero row still reads zero, or the id of a fresh history.
    pub(crate) fn zero_rows_clean(&self) -> bool {
        let row = self.layout.zero_row();
        let mut tensors = self.tensors.iter().zip(&self.buffers);
        tensors.all(|(tensor, FixedBuffers { bank, .. })| {
            // What the host cannot read, it cannot have written.
            bank.as_bytes().is_none()
                || bank
                    .row_bytes(row)
                    .is_some_and(|row| row == fresh_row(&tensor.spec, bank.row_elements()))
        })
    }

    /// The entry a handle names.
    pub(super) fn entry(
        &self,
        request: RequestId,
        handle: SlotHandle,
    ) -> Result<&Entry, StateError> {
        if handle.pool != self.id {
            return Err(StateError::Foreign(request));
        }
        let entry = self.entries.get(handle.index);
        entry
            .filter(|e| e.generation == handle.generation && e.slot.owner() == Some(request))
            .ok_or(StateError::Stale(request))
    }
}

/// What a fresh request reads: zeros, or the ids of its history. Empty for ids of a type that holds none.
fn fresh_row(spec: &FixedSpec, elements: usize) -> Vec<u8> {
    let id = match spec.element {
        ElementType::I64 => i64::from(spec.fresh).to_ne_bytes().to_vec(),
        ElementType::I32 => {
            let id = i32::try_from(spec.fresh);
            id.map_or(Vec::new(), |id| id.to_ne_bytes().to_vec())
        }
        ElementType::F32 | ElementType::F16 | ElementType::Bf16 | ElementType::I8 => {
            vec![
                0;
                if spec.fresh == 0 {
                    spec.element.size()
                } else {
                    0
                }
            ]
        }
    };
    id.repeat(elements)
}

fn allocate(
    spec: &FixedSpec,
    layout: BankLayout,
    max_rows: usize,
    device: &dyn Device,
) -> Result<FixedBuffers, PoolError> {
    let refused = |source| PoolError::Device {
        input: spec.input.clone(),
        source,
    };
    let mut shape = vec![layout.rows()];
    shape.extend_from_slice(&spec.row_shape);
    let mut bank = device.allocate(spec.element, &shape).map_err(refused)?;
    if spec.fresh != 0 {
        let fresh = fresh_row(spec, bank.row_elements());
        let row = bank.row_bytes_mut(layout.zero_row());
        let row = row.filter(|row| device.host_visible() && row.len() == fresh.len());
        let unfit = || {
            let expected = "0, but for ids in memory that the host reaches";
            wrong(spec, "fresh_token_id", expected, spec.fresh)
        };
        row.ok_or_else(unfit)?.copy_from_slice(&fresh);
    }
    let checkpoints = match &spec.checkpoints {
        Some(c) => {
            let shape = [c.count, max_rows, c.width];
            Some(device.allocate(spec.element, &shape).map_err(refused)?)
        }
        None => None,
    };
    Ok(FixedBuffers::new(bank, checkpoints))
}
