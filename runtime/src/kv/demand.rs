//! Blocks of two caches at once.

use std::iter::Sum;
use std::ops::Add;

/// Blocks of the decoder's cache, and of its draft head's. A head that is behind its decoder has other blocks filled in
/// part, so whoever counts the room of one cache must count that of the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Blocks {
    /// Of the decoder's cache; 0 without one.
    pub(crate) decoder: usize,
    /// Of the draft head's; 0 without one.
    pub(crate) head: usize,
}

impl Blocks {
    /// Whether both caches have so much room.
    pub(crate) fn fit(self, room: Self) -> bool {
        self.decoder <= room.decoder && self.head <= room.head
    }

    /// What is left of both, 0 where more is taken than there is.
    pub(crate) fn without(self, taken: Self) -> Self {
        Self {
            decoder: self.decoder.saturating_sub(taken.decoder),
            head: self.head.saturating_sub(taken.head),
        }
    }
}

impl Add for Blocks {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            decoder: self.decoder.saturating_add(other.decoder),
            head: self.head.saturating_add(other.head),
        }
    }
}

impl Sum for Blocks {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}
