//! Where rows and checkpoints lie. Every offset comes from capacities fixed at construction or from the extents
//! of the bound tensor, never from what a step happens to keep.

use super::slot::Bank;
use std::ops::Range;

/// Row indices of a bank tensor `[2 * slots + 1, row...]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BankLayout {
    slots: usize,
    rows: i32,
}

impl BankLayout {
    /// `None` without slots, or where a row index would not fit int32.
    pub(crate) fn new(slots: usize) -> Option<Self> {
        let rows = slots.checked_mul(2)?.checked_add(1)?;
        let rows = i32::try_from(rows).ok()?;
        (slots > 0).then_some(Self { slots, rows })
    }

    /// Slots per bank.
    pub(crate) fn slots(self) -> usize {
        self.slots
    }

    /// Rows of the tensor: both banks and the zero row.
    pub(crate) fn rows(self) -> usize {
        2 * self.slots + 1
    }

    /// The row a fresh admission reads. Never written.
    pub(crate) fn zero_row(self) -> usize {
        2 * self.slots
    }

    /// The row of `slot` in `bank`. `slot` is below [`Self::slots`].
    pub(crate) fn row(self, bank: Bank, slot: usize) -> usize {
        match bank {
            Bank::Zero => slot,
            Bank::One => self.slots + slot,
        }
    }

    /// `row` as the graph takes it; -1, which operators refuse to read and never write, for a row outside.
    pub(crate) fn index(self, row: usize) -> i32 {
        i32::try_from(row)
            .ok()
            .filter(|index| *index < self.rows)
            .unwrap_or(-1)
    }
}

/// Offsets of a checkpoint output `[capacity, rows, width]` of a step of `rows` rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeriesLayout {
    capacity: usize,
    rows: usize,
    width: usize,
}

impl SeriesLayout {
    /// Extents of the bound tensor.
    pub(crate) fn new(capacity: usize, rows: usize, width: usize) -> Self {
        Self {
            capacity,
            rows,
            width,
        }
    }

    /// Elements of `slot` of `row`; `None` outside the tensor.
    pub(crate) fn elements(self, slot: usize, row: usize) -> Option<Range<usize>> {
        if slot >= self.capacity || row >= self.rows {
            return None;
        }
        let start = (slot * self.rows + row) * self.width;
        Some(start..start + self.width)
    }
}
