//! The pools of one engine, allocated once.

use super::error::EngineError;
use crate::device::Device;
use crate::exec::CommitGraphs;
use crate::kv::KvPool;
use crate::model::spec::StateSpec;
use crate::state::StatePool;
use crate::txn::Composite;

/// How many requests the pools hold, and how long they can grow together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolExtent {
    /// Requests resident at once.
    pub(crate) slots: usize,
    /// Rows of one step that may capture.
    pub(crate) rows: usize,
    /// Blocks of the paged cache, for the decoder and again for its head.
    pub(crate) blocks: usize,
}

/// Allocates the state of a decoder, and the cache of its head where there is one. `commit` are the graphs that commit
/// kept prefixes where the host cannot.
///
/// # Errors
/// Sizes out of range and lack of memory.
pub(crate) fn allocate(
    decoder: &StateSpec,
    head: Option<&StateSpec>,
    extent: PoolExtent,
    (device, commit): (&dyn Device, Option<CommitGraphs>),
) -> Result<Composite, EngineError> {
    let PoolExtent {
        slots,
        rows,
        blocks,
    } = extent;
    let state = if decoder.fixed.is_empty() {
        None
    } else {
        let pool = StatePool::with_commit(decoder, slots, rows.max(slots), (device, commit));
        Some(pool.map_err(|e| EngineError::pools(&e))?)
    };
    let paged = |spec: Option<&StateSpec>| {
        spec.and_then(|spec| spec.paged.as_ref())
            .map(|paged| KvPool::new(paged, blocks, device))
            .transpose()
            .map_err(|e| EngineError::pools(&e))
    };
    let (kv, head) = (paged(Some(decoder))?, paged(head)?);
    Ok(Composite::new(slots, state, kv, head))
}
