//! Who owns a slot and which bank is active.

use crate::ids::RequestId;

/// One of the two copies a slot has of every tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bank {
    /// Rows `[0, slots)`.
    Zero,
    /// Rows `[slots, 2 * slots)`.
    One,
}

impl Bank {
    /// The bank that operators write while this one is active.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Zero => Self::One,
            Self::One => Self::Zero,
        }
    }
}

/// State of one slot. A free slot cannot hold anything of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// Nobody's.
    Free,
    /// Of a request whose first step is not published. It reads the zero row.
    Reserved {
        /// The request to be admitted.
        request: RequestId,
    },
    /// Of a resident request.
    Committed {
        /// The owner.
        request: RequestId,
        /// Holds the committed state; the other bank is free for the next step.
        active: Bank,
        /// Tokens the state has seen.
        tokens: usize,
        /// Steps published.
        version: u64,
    },
}

impl Slot {
    /// The request that owns the slot, resident or about to be.
    pub(crate) fn owner(&self) -> Option<RequestId> {
        match self {
            Self::Free => None,
            Self::Reserved { request } | Self::Committed { request, .. } => Some(*request),
        }
    }
}
