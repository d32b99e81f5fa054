//! The table of a row that branches off a request's committed positions, until it is adopted or discarded.

use super::blocks::{BlockId, BlockPool};
use super::error::KvError;
use super::pool::KvPool;
use super::reservation::blocks_for;
use crate::ids::RequestId;

/// Blocks for one branch: the full blocks of the request, shared and read only; a block of its own in the place of the
/// one that is filled in part; fresh ones for what the branch runs.
///
/// It holds one use of each block, so it must not be dropped: [`adopt`](Self::adopt) makes it the request's table,
/// [`discard`](Self::discard) gives everything back.
#[derive(Debug)]
#[must_use = "blocks of a candidate are adopted or discarded"]
pub(super) struct Candidate {
    table: Vec<BlockId>,
    /// How many of `table`, the first ones, the request's own table has as well.
    shared: usize,
    /// Positions the branch may write.
    tokens: usize,
}

impl Candidate {
    /// Takes blocks for `tokens` positions after the `past` that the request has committed. The block that is filled in
    /// part is not copied yet.
    pub(super) fn claim(
        pool: &mut KvPool,
        request: RequestId,
        past: usize,
        tokens: usize,
    ) -> Result<Self, KvError> {
        let shared = past / pool.block_size;
        let blocks = blocks_for(past.saturating_add(tokens), pool.block_size);
        let (needed, free) = (blocks.saturating_sub(shared), pool.blocks.free().len());
        let owned = pool.tables.get(&request);
        let owned = owned.and_then(|table| table.blocks.get(..shared));
        let mut table = Vec::with_capacity(blocks.min(pool.blocks.total()));
        table.extend_from_slice(owned.unwrap_or_default());
        let fresh = pool.blocks.take(needed);
        let fresh = fresh.ok_or(KvError::OutOfBlocks { needed, free })?;
        pool.blocks.share(&table);
        table.extend(fresh);
        Ok(Self {
            table,
            shared,
            tokens,
        })
    }

    /// All blocks, in the order of positions.
    pub(super) fn table(&self) -> &[BlockId] {
        &self.table
    }

    /// Positions the branch may write.
    pub(super) fn tokens(&self) -> usize {
        self.tokens
    }

    /// Blocks shared with the request's table, and blocks of its own.
    pub(super) fn split(&self) -> (&[BlockId], &[BlockId]) {
        self.table.split_at(self.shared.min(self.table.len()))
    }

    /// Becomes the request's table with `committed` positions. The blocks of the table before lose that use.
    pub(super) fn adopt(mut self, pool: &mut KvPool, request: RequestId, committed: usize) {
        let mut table = std::mem::take(&mut self.table);
        let kept = blocks_for(committed, pool.block_size).min(table.len());
        pool.blocks.give_back(table.get(kept..).unwrap_or_default());
        table.truncate(kept);
        let entry = pool.tables.entry(request).or_default();
        let before = std::mem::replace(&mut entry.blocks, table);
        entry.committed = committed;
        pool.blocks.give_back(&before);
    }

    /// Gives every block back.
    pub(super) fn discard(mut self, blocks: &mut BlockPool) {
        blocks.give_back(&std::mem::take(&mut self.table));
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        debug_assert!(
            self.table.is_empty() || std::thread::panicking(),
            "a candidate was neither adopted nor discarded"
        );
    }
}
