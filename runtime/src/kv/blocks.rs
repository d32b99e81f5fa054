//! Which cache blocks are free and how many tables use each.

/// One block of the cache, in every layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BlockId(u32);

impl BlockId {
    /// Index as the graph's block table takes it.
    pub(crate) fn column(self) -> i32 {
        i32::try_from(self.0).unwrap_or(-1)
    }

    /// Index into the leading axis of the cache tensors.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A free list with reference counts. A block is free exactly when nobody counts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockPool {
    references: Vec<u32>,
    /// Taken from the end; capacity for every block, so giving back never allocates.
    free: Vec<BlockId>,
}

impl BlockPool {
    /// `None` when an int32 table could not name every block.
    pub(super) fn new(blocks: usize) -> Option<Self> {
        let count = u32::try_from(i32::try_from(blocks).ok()?).ok()?;
        Some(Self {
            references: vec![0; blocks],
            free: (0..count).rev().map(BlockId).collect(),
        })
    }

    /// All blocks.
    pub(crate) fn total(&self) -> usize {
        self.references.len()
    }

    /// Blocks nobody uses.
    pub(crate) fn free(&self) -> &[BlockId] {
        &self.free
    }

    /// Users of each block.
    pub(crate) fn references(&self) -> &[u32] {
        &self.references
    }

    /// Takes `count` blocks for one user each, or none.
    pub(super) fn take(&mut self, count: usize) -> Option<Vec<BlockId>> {
        let keep = self.free.len().checked_sub(count)?;
        let taken: Vec<BlockId> = self.free.drain(keep..).rev().collect();
        for block in &taken {
            if let Some(references) = self.references.get_mut(block.index()) {
                *references = 1;
            }
        }
        Some(taken)
    }

    /// Adds one use to each of `blocks`, or to none where one of them is free.
    pub(super) fn share(&mut self, blocks: &[BlockId]) -> bool {
        let used = |block: &BlockId| self.references.get(block.index()).is_some_and(|n| *n > 0);
        if !blocks.iter().all(used) {
            return false;
        }
        for block in blocks {
            if let Some(references) = self.references.get_mut(block.index()) {
                *references = references.saturating_add(1);
            }
        }
        true
    }

    /// Ends one use of each of `blocks`. In the reverse order of [`Self::take`] this restores the free list exactly,
    /// hence last block first.
    pub(super) fn give_back(&mut self, blocks: &[BlockId]) {
        for block in blocks.iter().rev() {
            if let Some(references) = self.references.get_mut(block.index())
                && *references > 0
            {
                *references -= 1;
                if *references == 0 {
                    self.free.push(*block);
                }
            }
        }
    }
}
