//! The memory of one fixed-state tensor, and which of its states are still to be made.

use crate::device::Buffer;
use crate::kernels::OwedState;
use std::borrow::Cow;
use std::ops::Range;

/// Buffers of one fixed-state tensor.
#[derive(Debug)]
pub(crate) struct FixedBuffers {
    /// `[2 * slots + 1, row_shape...]`.
    pub(crate) bank: Buffer,
    /// `[count * max_rows * width]` elements of staging, viewed as `[count, rows, ...]` for the rows of a step.
    pub(crate) checkpoints: Option<Buffer>,
    /// Committed states of different rows that are not made yet. Until they are, those rows hold what came before, and
    /// nothing else may be written to the checkpoints.
    pub(crate) owed: Vec<OwedState>,
    /// Rows that an operator makes in the run that is under way, or has failed at: nobody knows what they hold.
    pub(crate) lost: Vec<usize>,
    /// Whether one of Pawl's operators had the bank in the last run: it makes what is owed to it before it reads.
    pub(crate) by_operator: bool,
}

/// A state was lost when an operator failed while it made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost;

/// Bytes of a NaN in every type of floats, and of -1 in every type of integers.
const POISON: u8 = 0xFF;

impl FixedBuffers {
    /// Memory to which nothing is owed.
    pub(crate) fn new(bank: Buffer, checkpoints: Option<Buffer>) -> Self {
        Self {
            bank,
            checkpoints,
            owed: Vec::new(),
            lost: Vec::new(),
            by_operator: false,
        }
    }

    /// Whether the host can make these states: memory that it reaches, of the extents that they need, and each in a row of
    /// its own. Otherwise the place of the first that it cannot make.
    pub(crate) fn can_make(&self, states: &[OwedState]) -> Result<(), usize> {
        let elements = self.checkpoints.as_ref().and_then(|checkpoints| {
            let bytes = checkpoints.as_bytes()?.len();
            let same = checkpoints.element() == self.bank.element();
            same.then_some(bytes / checkpoints.element().size())
        });
        let row = self.bank.row_elements();
        let bytes = self.bank.as_bytes().map_or(0, <[u8]>::len);
        let rows = bytes / (row * self.bank.element().size()).max(1);
        let replayable = self.bank.as_f32().is_some();
        let wrong = |(index, state): (usize, &OwedState)| {
            let fits = elements.is_some_and(|elements| state.fits((rows, row), elements));
            let mut earlier = states.iter().take(index);
            let alone = earlier.all(|other| other.row != state.row);
            !(fits && alone && (replayable || state.is_copied()))
        };
        match states.iter().enumerate().position(wrong) {
            Some(index) => Err(index),
            None => Ok(()),
        }
    }

    /// A row as the bytes of its elements, with what is owed to it; `None` for one that the host cannot read.
    ///
    /// # Errors
    /// A state that was lost.
    pub(crate) fn row(&self, row: usize) -> Result<Option<Cow<'_, [u8]>>, Lost> {
        if self.lost.contains(&row) {
            return Err(Lost);
        }
        let owed = self.owed.iter().find(|state| state.row == row);
        let found = self.bank.row_bytes(row).map(Cow::Borrowed);
        Ok(match owed {
            None => found,
            Some(state) if state.is_copied() => {
                let checkpoints = self.checkpoints.as_ref();
                let copied = checkpoints.and_then(|checkpoints| copied(checkpoints, state));
                copied.map(Cow::Borrowed)
            }
            Some(state) => self.replayed(state).map(Cow::Owned),
        })
    }

    /// The elements of a bank row.
    fn elements(&self, row: usize) -> Range<usize> {
        let len = self.bank.row_elements();
        row * len..(row + 1) * len
    }

    fn replayed(&self, state: &OwedState) -> Option<Vec<u8>> {
        let elements = self.elements(state.row);
        let mut row = self.bank.as_f32()?.get(elements)?.to_vec();
        state.make(self.checkpoints.as_ref()?.as_f32()?, &mut row);
        Some(row.into_iter().flat_map(f32::to_ne_bytes).collect())
    }

    /// Makes what is owed to all rows.
    pub(crate) fn settle(&mut self) {
        for state in std::mem::take(&mut self.owed) {
            self.make(&state);
        }
    }

    /// Makes what is owed to one row, if anything is.
    ///
    /// # Errors
    /// A state that was lost.
    pub(crate) fn settle_row(&mut self, row: usize) -> Result<(), Lost> {
        if self.lost.contains(&row) {
            return Err(Lost);
        }
        if let Some(at) = self.owed.iter().position(|state| state.row == row) {
            let state = self.owed.swap_remove(at);
            self.make(&state);
        }
        Ok(())
    }

    /// Forgets what was owed to a row and whether it was lost: whoever has it next writes it first.
    pub(crate) fn forget(&mut self, row: usize) {
        self.owed.retain(|state| state.row != row);
        self.lost.retain(|lost| *lost != row);
    }

    /// Makes one state that [can be made](Self::can_make).
    fn make(&mut self, state: &OwedState) {
        let made = self.try_make(state);
        debug_assert!(made.is_some(), "{state:?} was checked");
    }

    fn try_make(&mut self, state: &OwedState) -> Option<()> {
        let (elements, checkpoints) = (self.elements(state.row), self.checkpoints.as_ref()?);
        if state.is_copied() {
            let row = self.bank.row_bytes_mut(state.row)?;
            row.copy_from_slice(copied(checkpoints, state)?);
        } else {
            let row = self.bank.as_f32_mut()?.get_mut(elements)?;
            state.make(checkpoints.as_f32()?, row);
        }
        Some(())
    }

    /// In debug builds, fills a row that is about to be written with NaN, or -1 for ids, so that reading what was not
    /// written is noticed.
    pub(crate) fn poison_row(&mut self, row: usize) {
        if cfg!(debug_assertions) {
            let row = self.bank.row_bytes_mut(row);
            let _ = row.map(|bytes| bytes.fill(POISON));
        }
    }

    /// As [`Self::poison_row`], the first `elements` of the checkpoints, but for those that owed states are made of.
    pub(crate) fn poison_checkpoints(&mut self, elements: usize) {
        let staging = self.checkpoints.as_mut().and_then(Buffer::as_bytes_mut);
        let Some(staging) = staging.filter(|_| cfg!(debug_assertions)) else {
            return;
        };
        let size = self.bank.element().size();
        let read = self.owed.iter().flat_map(|state| state.reads());
        let bytes = read.map(|range| range.start * size..range.end * size);
        let spared: Vec<_> = bytes
            .filter_map(|range| Some((range.start, staging.get(range)?.to_vec())))
            .collect();
        let front = staging.len().min(elements.saturating_mul(size));
        staging
            .iter_mut()
            .take(front)
            .for_each(|byte| *byte = POISON);
        for (start, bytes) in spared {
            if let Some(place) = staging.get_mut(start..start + bytes.len()) {
                place.copy_from_slice(&bytes);
            }
        }
    }
}

/// The bytes of the checkpoint that an owed state is a copy of.
fn copied<'b>(checkpoints: &'b Buffer, state: &OwedState) -> Option<&'b [u8]> {
    let (size, read) = (checkpoints.element().size(), state.reads().next()?);
    let bytes = read.start * size..read.end * size;
    checkpoints.as_bytes()?.get(bytes)
}
