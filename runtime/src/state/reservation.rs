//! One step's claim on fixed state: reserved, kept prefixes chosen, prepared, published.

use super::error::StateError;
use super::handle::SlotHandle;
use super::partial::{partial_rows, source};
use super::pool::StatePool;
use super::slot::{Bank, Slot};
use crate::ids::RequestId;
use crate::kernels::OwedState;
use crate::model::FixedBuffers;
use crate::txn::{Participant, ParticipantError, Permit};
use std::num::NonZeroUsize;

/// One row of a step, as the pool needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixedRow {
    /// Whose row.
    pub(crate) request: RequestId,
    /// The slot of a resident request; `None` admits the request.
    pub(crate) handle: Option<SlotHandle>,
    /// Tokens the row runs, drafts included.
    pub(crate) tokens: NonZeroUsize,
    /// Tokens captured, from the first on; 0 for a row without drafts.
    pub(crate) captured: usize,
}

/// A row whose slot is claimed, and the rows that branch off the same committed state.
#[derive(Clone, Debug)]
pub(super) struct ReservedRow {
    handle: SlotHandle,
    request: RequestId,
    /// The slot as it was before the step; `None` for an admission.
    pub(super) before: Option<Committed>,
    pub(super) read: usize,
    pub(super) write: usize,
    /// The bank that is active once the step is published.
    pub(super) next: Bank,
    /// The row that writes its final state.
    pub(super) own: Run,
    /// Rows that only capture, in batch order after the own one.
    pub(super) branches: Vec<Run>,
    /// The row whose prefix is kept: 0 for the own one, `i` for branch `i - 1`.
    pub(super) winner: usize,
    kept: Option<NonZeroUsize>,
}

/// What the operators do in one row of the batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) tokens: usize,
    pub(super) captured: usize,
    /// Whether the state after the last token is written. That of a branch is not.
    pub(super) final_written: bool,
}

/// What a resident slot held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Committed {
    pub(super) active: Bank,
    tokens: usize,
    version: u64,
}

/// The pool's participant. Of committed rows only those are written until it is published that are owed a state; see `manual::state`.
#[derive(Debug)]
pub(crate) struct StateReservation<'a> {
    pub(super) pool: &'a mut StatePool,
    pub(super) rows: Vec<ReservedRow>,
    /// Of each tensor, once the step is prepared: the states that are owed once it is published.
    owed: Vec<Vec<OwedState>>,
}

/// The fixed-state inputs of the graph, one entry per row of the batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FixedBinding {
    /// Bank row that holds the state before the step.
    pub(crate) read_rows: Vec<i32>,
    /// Bank row that takes the state after the step, always another; -1 for none.
    pub(crate) write_rows: Vec<i32>,
    /// Tokens captured.
    pub(crate) capture_counts: Vec<i32>,
}

impl<'a> StateReservation<'a> {
    pub(super) fn new(pool: &'a mut StatePool, rows: &[FixedRow]) -> Result<Self, StateError> {
        check(pool, rows)?;
        let mut free = free_slots(pool).into_iter();
        let mut reserved = Vec::with_capacity(rows.len());
        for row in rows {
            let claimed = match row.handle {
                Some(handle) => resident(pool, row, handle),
                None => free.next().and_then(|index| admit(pool, row, index)),
            };
            reserved.push(claimed.ok_or(StateError::Stale(row.request))?);
        }
        for row in reserved.iter().filter(|row| row.before.is_none()) {
            if let Some(entry) = pool.entries.get_mut(row.handle.index) {
                entry.slot = Slot::Reserved {
                    request: row.request,
                };
            }
        }
        let mut reservation = Self {
            pool,
            rows: reserved,
            owed: Vec::new(),
        };
        reservation.poison();
        Ok(reservation)
    }

    /// What the graph is given: every row, directly followed by its branches.
    pub(crate) fn binding(&self) -> FixedBinding {
        let layout = self.pool.layout;
        let write = |(row, run): (&ReservedRow, &Run)| {
            if run.final_written {
                layout.index(row.write)
            } else {
                -1
            }
        };
        let read = |(row, _): (&ReservedRow, &Run)| layout.index(row.read);
        FixedBinding {
            read_rows: self.batch().map(read).collect(),
            write_rows: self.batch().map(write).collect(),
            capture_counts: self.batch().map(|(_, run)| clamp(run.captured)).collect(),
        }
    }

    /// Whether some row captures, so that checkpoint outputs must be bound.
    pub(crate) fn captures(&self) -> bool {
        self.batch().any(|(_, run)| run.captured > 0)
    }

    /// Rows of the batch.
    fn batch(&self) -> impl Iterator<Item = (&ReservedRow, &Run)> {
        let rows = self.rows.iter();
        rows.flat_map(|row| row.runs().map(move |run| (row, run)))
    }

    /// The tensors for the run, in manifest order. Operators write rows of [`FixedBinding::write_rows`], states that are
    /// owed, and checkpoint staging only, viewed as `[count, rows of the step, ...]`.
    pub(crate) fn buffers(&mut self) -> &mut [FixedBuffers] {
        &mut self.pool.buffers
    }

    /// The slot of a row; valid for others once the step is published.
    pub(crate) fn handle(&self, row: usize) -> Option<SlotHandle> {
        self.rows.get(row).map(|row| row.handle)
    }

    /// The pool as an audit sees it, reserved slots included.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn pool(&self) -> &StatePool {
        self.pool
    }

    /// Decides, once, that only the first `kept` tokens of a row stay. A row that is never asked keeps all.
    ///
    /// # Errors
    /// Rows outside the step, a second decision, and prefixes whose state does not exist ([`super::select::SelectError`]).
    pub(crate) fn commit_prefix(
        &mut self,
        row: usize,
        kept: NonZeroUsize,
    ) -> Result<(), StateError> {
        let rows = self.rows.len();
        let reserved = self
            .rows
            .get_mut(row)
            .ok_or(StateError::UnknownRow { row, rows })?;
        if reserved.kept.is_some() {
            return Err(StateError::Twice(row));
        }
        for tensor in &self.pool.tensors {
            source(tensor, reserved, kept).map_err(|source| StateError::Select { row, source })?;
        }
        reserved.kept = Some(kept);
        Ok(())
    }

    /// The bank row that a row of the step writes.
    pub(super) fn write_row(&self, row: usize) -> Result<usize, StateError> {
        let rows = self.rows.len();
        let reserved = self.rows.get(row);
        let reserved = reserved.ok_or(StateError::UnknownRow { row, rows })?;
        Ok(reserved.write)
    }

    /// Lets a row of a resident remember another version, as if its slot had moved on meanwhile.
    #[cfg(test)]
    pub(crate) fn forge_version(&mut self, row: usize) {
        if let Some(before) = self.rows.get_mut(row).and_then(|row| row.before.as_mut()) {
            before.version += 1;
        }
    }

    /// Makes unwritten memory visible: whatever the step must write and whatever it may not read is NaN, or -1 for ids.
    fn poison(&mut self) {
        let captures = self.captures();
        for buffers in &mut self.pool.buffers {
            self.rows
                .iter()
                .for_each(|row| buffers.poison_row(row.write));
            if captures {
                buffers.poison_checkpoints(usize::MAX);
            }
        }
    }

    fn check_row(&self, index: usize, row: &ReservedRow) -> Result<(), StateError> {
        let entry = self.pool.entry(row.request, row.handle)?;
        let now = match entry.slot {
            Slot::Committed {
                active,
                tokens,
                version,
                ..
            } => Some(Committed {
                active,
                tokens,
                version,
            }),
            Slot::Free | Slot::Reserved { .. } => None,
        };
        if now != row.before {
            return Err(StateError::Changed(row.request));
        }
        for tensor in &self.pool.tensors {
            source(tensor, row, row.kept_tokens()?)
                .map_err(|source| StateError::Select { row: index, source })?;
        }
        Ok(())
    }
}

impl ReservedRow {
    pub(super) fn request(&self) -> RequestId {
        self.request
    }

    /// Whether no operator wrote the state after the kept tokens, in any of the tensors.
    pub(super) fn is_partial(&self) -> bool {
        let run = self.winning();
        let kept = self.kept.map_or(run.tokens, NonZeroUsize::get);
        kept < run.tokens || !run.final_written
    }

    /// The own row and the branches, in batch order.
    pub(super) fn runs(&self) -> impl Iterator<Item = &Run> {
        std::iter::once(&self.own).chain(&self.branches)
    }

    /// The row whose prefix is kept.
    pub(super) fn winning(&self) -> &Run {
        let branch = self.winner.checked_sub(1);
        branch
            .and_then(|branch| self.branches.get(branch))
            .unwrap_or(&self.own)
    }

    pub(super) fn kept_tokens(&self) -> Result<NonZeroUsize, StateError> {
        self.kept
            .or(NonZeroUsize::new(self.winning().tokens))
            .ok_or(StateError::Changed(self.request))
    }
}

impl Participant for StateReservation<'_> {
    fn name(&self) -> &'static str {
        "fixed state"
    }

    fn validate(&self) -> Result<(), ParticipantError> {
        for (index, row) in self.rows.iter().enumerate() {
            self.check_row(index, row)?;
        }
        Ok(())
    }

    fn prepare(&mut self) -> Result<(), ParticipantError> {
        let (rows, in_place) = (self.batch_rows(), self.pool.committer.is_in_place());
        let pool = &mut *self.pool;
        let partial = |tensor| partial_rows(tensor, &self.rows, in_place);
        let partial: Vec<_> = pool.tensors.iter().map(partial).collect::<Result<_, _>>()?;
        let count = partial.iter().map(Vec::len).max().unwrap_or(0);
        let all_or_none = partial.iter().all(|rows| rows.len() == count);
        debug_assert!(all_or_none, "a row is partial in all tensors or in none");
        if count > 0 {
            // Mostly nothing is owed by now: the step has read it.
            pool.settle();
            let StatePool {
                committer,
                tensors,
                buffers,
                ..
            } = pool;
            self.owed = committer.prepare(tensors, (rows, &partial), buffers)?;
            self.choose_places()?;
        }
        Ok(())
    }

    fn publish(&mut self, _permit: &Permit) {
        for (buffers, owed) in self.pool.buffers.iter_mut().zip(&mut self.owed) {
            debug_assert!(buffers.owed.is_empty(), "made when the step was prepared");
            buffers.owed.append(owed);
        }
        for row in &self.rows {
            let before = row
                .before
                .map_or((0, 0), |before| (before.tokens, before.version));
            if let Some(entry) = self.pool.entries.get_mut(row.handle.index) {
                entry.slot = Slot::Committed {
                    request: row.request,
                    active: row.next,
                    tokens: before.0 + row.kept.map_or(row.winning().tokens, NonZeroUsize::get),
                    version: before.1.wrapping_add(1),
                };
            }
        }
    }

    fn discard(&mut self) {
        for row in self.rows.iter().filter(|row| row.before.is_none()) {
            if let Some(entry) = self.pool.entries.get_mut(row.handle.index) {
                entry.slot = Slot::Free;
            }
        }
    }
}

/// Refuses a step that cannot be reserved as a whole.
fn check(pool: &StatePool, rows: &[FixedRow]) -> Result<(), StateError> {
    if rows.len() > pool.max_rows {
        return Err(StateError::TooManyRows {
            rows: rows.len(),
            max_rows: pool.max_rows,
        });
    }
    let capacity = pool.capture_capacity();
    for (index, row) in rows.iter().enumerate() {
        let request = row.request;
        let earlier = rows
            .iter()
            .take(index)
            .any(|other| other.request == request);
        let resident = pool
            .entries
            .iter()
            .any(|entry| entry.slot.owner() == Some(request));
        if earlier || (row.handle.is_none() && resident) {
            return Err(StateError::Duplicate(request));
        }
        if let Some(handle) = row.handle {
            pool.tokens(request, handle)?;
        }
        let (tokens, captured) = (row.tokens.get(), row.captured);
        if captured > tokens || (captured > 0 && tokens > capacity) {
            return Err(StateError::Capture {
                request,
                tokens,
                captured,
                capacity,
            });
        }
    }
    let (needed, free) = (
        rows.iter().filter(|row| row.handle.is_none()).count(),
        pool.free_slots(),
    );
    if needed > free {
        return Err(StateError::NoFreeSlot { needed, free });
    }
    Ok(())
}

fn free_slots(pool: &StatePool) -> Vec<usize> {
    let free = pool
        .entries
        .iter()
        .enumerate()
        .filter(|(_, entry)| entry.slot == Slot::Free);
    free.map(|(index, _)| index).collect()
}

fn resident(pool: &StatePool, row: &FixedRow, handle: SlotHandle) -> Option<ReservedRow> {
    let entry = pool.entry(row.request, handle).ok()?;
    let Slot::Committed {
        active,
        tokens,
        version,
        ..
    } = entry.slot
    else {
        return None;
    };
    let read = pool.layout.row(active, handle.index);
    let before = Committed {
        active,
        tokens,
        version,
    };
    Some(claimed(
        pool,
        row,
        handle,
        (Some(before), read, active.other()),
    ))
}

fn admit(pool: &StatePool, row: &FixedRow, index: usize) -> Option<ReservedRow> {
    let generation = pool.entries.get(index)?.generation;
    let handle = SlotHandle {
        pool: pool.id,
        index,
        generation,
    };
    Some(claimed(
        pool,
        row,
        handle,
        (None, pool.layout.zero_row(), Bank::Zero),
    ))
}

fn claimed(
    pool: &StatePool,
    row: &FixedRow,
    handle: SlotHandle,
    (before, read, next): (Option<Committed>, usize, Bank),
) -> ReservedRow {
    ReservedRow {
        handle,
        request: row.request,
        before,
        read,
        write: pool.layout.row(next, handle.index),
        next,
        own: Run {
            tokens: row.tokens.get(),
            captured: row.captured,
            final_written: true,
        },
        branches: Vec::new(),
        winner: 0,
        kept: None,
    }
}

fn clamp(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
