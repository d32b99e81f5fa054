//! How full the pools are.

use super::core::Core;
use crate::state::Slot;
use crate::txn::PagedSnapshot;

/// What the pools of an engine hold, between two of its steps.
///
/// A running request holds a slot and the blocks of the tokens it has run; a kept state holds what its request held. When
/// neither is left, everything is free.
///
/// ```no_run
/// # use pawl::{Engine, EngineOptions, LoadOptions, Model};
/// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
/// # let engine = Engine::new(model, &EngineOptions::default())?;
/// let idle = engine.pool_usage().ok_or("the engine has stopped")?;
/// assert_eq!(idle.free_slots, idle.slots);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolUsage {
    /// Requests and kept states that hold something.
    pub residents: usize,
    /// Requests and kept states that can.
    pub slots: usize,
    /// Slots that nobody holds.
    pub free_slots: usize,
    /// Blocks of the key/value cache; 0 without one.
    pub blocks: usize,
    /// Blocks that nobody holds.
    pub free_blocks: usize,
    /// Blocks of the draft head's cache; 0 without one.
    pub head_blocks: usize,
    /// Blocks of the draft head's cache that nobody holds.
    pub free_head_blocks: usize,
}

impl Core {
    /// Reads the pools.
    pub(super) fn pool_usage(&self) -> PoolUsage {
        let pools = self.composite.snapshot();
        let residents = pools.residents.len();
        let unowned = pools.capacity.saturating_sub(residents);
        let free_slots = pools.fixed.as_ref().map_or(unowned, |fixed| {
            let free = fixed.entries.iter().filter(|e| e.slot == Slot::Free);
            free.count()
        });
        let (blocks, free_blocks) = extent(pools.paged.as_ref());
        let (head_blocks, free_head_blocks) = extent(pools.head.as_ref());
        PoolUsage {
            residents,
            slots: pools.capacity,
            free_slots,
            blocks,
            free_blocks,
            head_blocks,
            free_head_blocks,
        }
    }
}

/// Blocks of a cache, and how many of them are free.
fn extent(cache: Option<&PagedSnapshot>) -> (usize, usize) {
    cache.map_or((0, 0), |cache| (cache.references.len(), cache.free.len()))
}
