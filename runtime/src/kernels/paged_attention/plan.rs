//! Which cache slots each row of a step reads and writes.

#![expect(
    clippy::indexing_slicing,
    reason = "blocks and rows are checked while the plan is read"
)]

use super::super::batch::{Batch, in_range};
use super::super::error::KernelError;

/// Extents of a node and of its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extents {
    /// Query heads.
    pub(crate) heads: usize,
    /// Key (and value) heads.
    pub(crate) kv_heads: usize,
    /// Elements of a head.
    pub(crate) dim: usize,
    /// Blocks of the cache.
    pub(crate) blocks: usize,
    /// Tokens of a block.
    pub(crate) block_size: usize,
}

impl Extents {
    /// Query heads that share a key head.
    pub(crate) const fn group(self) -> usize {
        self.heads / self.kv_heads
    }

    /// Elements of one packed token, query | key | value.
    pub(crate) const fn packed(self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.dim
    }

    /// Elements of one token of the key cache.
    pub(crate) const fn cached(self) -> usize {
        self.kv_heads * self.dim
    }
}

/// Owner of a block that is written: batch row and index in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Writer {
    row: usize,
    index: usize,
}

/// Block tables and past lengths of a step, checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    past: Vec<usize>,
    /// First slot of each block, `[rows, max_blocks]`; unmapped blocks hold 0 and are never asked for.
    slots: Vec<usize>,
    max_blocks: usize,
    block_size: usize,
    /// By block. Only what `claimed` names is not `None`, so that a step need not walk over the whole cache.
    writers: Vec<Option<Writer>>,
    claimed: Vec<usize>,
}

impl Plan {
    /// Reads `past_sequence_lengths` `[rows]` and `block_table` `[rows, max_blocks]`. Every position
    /// of a row up to its last new token must be mapped. A block that is written in this step belongs
    /// to one row alone.
    pub(crate) fn read(
        &mut self,
        extents: Extents,
        batch: &Batch,
        past: &[i32],
        (table, max_blocks): (&[i32], usize),
    ) -> Result<(), KernelError> {
        self.max_blocks = max_blocks;
        self.block_size = extents.block_size;
        self.past.clear();
        self.slots.clear();
        for (row, &value) in past.iter().enumerate() {
            let room = (max_blocks * extents.block_size).checked_sub(batch.range(row).len());
            let Some(room) = room else {
                return Err(too_long(row, batch, max_blocks * extents.block_size));
            };
            let value = in_range("past_sequence_lengths", row, value, 0, room)?;
            self.past.push(value.unsigned_abs() as usize);
        }
        let high = extents.blocks.saturating_sub(1);
        for (row, blocks) in table.chunks_exact(max_blocks.max(1)).enumerate() {
            let (mapped, spare) = blocks.split_at(self.used(batch, row));
            let bounds = mapped
                .iter()
                .map(|b| (b, 0))
                .chain(spare.iter().map(|b| (b, -1)));
            for (&block, low) in bounds {
                let block = in_range("block_table", row, block, low, high)?;
                self.slots
                    .push(usize::try_from(block).unwrap_or(0) * extents.block_size);
            }
        }
        self.refuse_conflicts(extents, batch)
    }

    fn refuse_conflicts(&mut self, extents: Extents, batch: &Batch) -> Result<(), KernelError> {
        for block in self.claimed.drain(..) {
            self.writers[block] = None;
        }
        self.writers.resize(extents.blocks, None);
        for row in 0..batch.rows() {
            let written = self.past[row] / self.block_size..self.used(batch, row);
            written
                .into_iter()
                .try_for_each(|index| self.claim(row, index))?;
        }
        for row in 0..batch.rows() {
            (0..self.used(batch, row)).try_for_each(|index| self.check(row, index))?;
        }
        Ok(())
    }

    fn block(&self, row: usize, index: usize) -> usize {
        self.slots[row * self.max_blocks + index] / self.block_size
    }

    /// Notes that a row writes a block of its table.
    fn claim(&mut self, row: usize, index: usize) -> Result<(), KernelError> {
        let block = self.block(row, index);
        self.claimed.push(block);
        match self.writers[block].replace(Writer { row, index }) {
            Some(other) => Err(KernelError::BlockConflict {
                block,
                row,
                other: other.row,
            }),
            None => Ok(()),
        }
    }

    /// Refuses a block of a row's table that is written in another place.
    fn check(&self, row: usize, index: usize) -> Result<(), KernelError> {
        let block = self.block(row, index);
        match self.writers[block] {
            Some(writer) if writer != (Writer { row, index }) => Err(KernelError::BlockConflict {
                block,
                row: writer.row,
                other: row,
            }),
            Some(_) | None => Ok(()),
        }
    }

    fn used(&self, batch: &Batch, row: usize) -> usize {
        (self.past[row] + batch.range(row).len()).div_ceil(self.block_size)
    }

    /// Tokens of a row before this step.
    pub(crate) fn past(&self, row: usize) -> usize {
        self.past[row]
    }

    /// Cache slot (token of the cache) of a position of a row.
    pub(crate) fn slot(&self, row: usize, position: usize) -> usize {
        let block = row * self.max_blocks + position / self.block_size;
        self.slots[block] + position % self.block_size
    }

    /// Positions from `position` to the end of its block.
    pub(crate) fn run(&self, position: usize) -> usize {
        self.block_size - position % self.block_size
    }
}

fn too_long(row: usize, batch: &Batch, room: usize) -> KernelError {
    KernelError::Range {
        name: "tokens of a row against its block table",
        row,
        low: 1,
        high: i64::try_from(room).unwrap_or(i64::MAX),
        found: i64::try_from(batch.range(row).len()).unwrap_or(i64::MAX),
    }
}
