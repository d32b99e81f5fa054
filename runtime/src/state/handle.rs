//! Identities of pools and slots.

use std::sync::atomic::{AtomicU64, Ordering};

/// One pool, unique within the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolId(u64);

impl PoolId {
    pub(super) fn fresh() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The right to use one slot: made when an admission is published, void after the slot's release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotHandle {
    pub(super) pool: PoolId,
    pub(super) index: usize,
    pub(super) generation: u64,
}
