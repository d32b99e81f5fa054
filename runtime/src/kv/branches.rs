//! Rows that branch off the committed positions of another row of the step.

use super::blocks::{BlockId, BlockPool};
use super::candidate::Candidate;
use super::error::KvError;
use super::pool::KvPool;
use super::reservation::{KvReservation, ReservedRow};

impl KvReservation<'_> {
    /// Adds a candidate to a row of the step: a table of its own for `tokens` positions after the committed ones. What
    /// the block that is filled in part holds is copied by [`Self::copy_tail`].
    ///
    /// # Errors
    /// Rows outside the step; [`KvError::OutOfBlocks`], which changes nothing.
    pub(crate) fn reserve_branch(&mut self, row: usize, tokens: usize) -> Result<(), KvError> {
        let rows = self.rows.len();
        let reserved = self.rows.get_mut(row);
        let reserved = reserved.ok_or(KvError::UnknownRow { row, rows })?;
        let (request, past) = (reserved.request, reserved.past);
        reserved.branches.reserve(1);
        let candidate = Candidate::claim(self.pool, request, past, tokens)?;
        if cfg!(debug_assertions) {
            self.pool.poison(candidate.split().1);
        }
        if let Some(reserved) = self.rows.get_mut(row) {
            reserved.branches.push(candidate);
        }
        Ok(())
    }

    /// Branches that a row has.
    pub(crate) fn branches(&self, row: usize) -> usize {
        self.rows.get(row).map_or(0, |row| row.branches.len())
    }

    /// Copies what the last blocks of a row hold of its first `past + positions` positions into the blocks of a branch,
    /// in every layer, so that the branch goes on from there. Full blocks from before the step are shared and stay.
    ///
    /// # Errors
    /// Rows and branches that are not there, more positions than the row or the branch may write, memory that the host
    /// cannot reach.
    pub(crate) fn copy_tail(
        &mut self,
        row: usize,
        branch: usize,
        positions: usize,
    ) -> Result<(), KvError> {
        for (from, into, count) in self.tail(row, branch, positions)? {
            self.pool
                .copy_positions(from.index(), into.index(), count)?;
        }
        Ok(())
    }

    /// Blocks to copy, and how many positions of each.
    fn tail(
        &self,
        row: usize,
        branch: usize,
        positions: usize,
    ) -> Result<Vec<(BlockId, BlockId, usize)>, KvError> {
        let rows = self.rows.len();
        let reserved = self.rows.get(row);
        let reserved = reserved.ok_or(KvError::UnknownRow { row, rows })?;
        let candidate = reserved.branches.get(branch);
        let candidate = candidate.ok_or(KvError::UnknownCandidate {
            row,
            candidate: branch + 1,
            candidates: reserved.branches.len() + 1,
        })?;
        let tokens = reserved.tokens.min(candidate.tokens());
        if positions > tokens {
            return Err(KvError::KeptTooMany {
                row,
                kept: positions,
                tokens,
            });
        }
        let (shared, size) = (candidate.split().0.len(), self.pool.block_size);
        let left = (reserved.past + positions).saturating_sub(shared * size);
        let own = self.own_blocks(reserved).iter().chain(&reserved.taken);
        let pairs = own.zip(candidate.table()).skip(shared);
        let counts = (0..left)
            .step_by(size)
            .map(|copied| size.min(left - copied));
        let copies = pairs.zip(counts);
        Ok(copies
            .map(|((from, into), count)| (*from, *into, count))
            .collect())
    }

    /// Decides, before its length is, which candidate of a row is kept: 0 for the own row, `i` for branch `i - 1`.
    ///
    /// # Errors
    /// Rows outside the step, and candidates that the row does not have.
    pub(crate) fn elect(&mut self, row: usize, candidate: usize) -> Result<(), KvError> {
        let rows = self.rows.len();
        let reserved = self.rows.get_mut(row);
        let reserved = reserved.ok_or(KvError::UnknownRow { row, rows })?;
        let candidates = reserved.branches.len() + 1;
        if candidate >= candidates {
            return Err(KvError::UnknownCandidate {
                row,
                candidate,
                candidates,
            });
        }
        reserved.winner = candidate;
        Ok(())
    }
}

impl KvPool {
    /// Makes visible what is read of blocks before it was written: they hold NaN.
    fn poison(&mut self, blocks: &[BlockId]) {
        for buffers in &mut self.buffers {
            for buffer in [&mut buffers.key, &mut buffers.value] {
                let elements = buffer.row_elements();
                let Some(values) = buffer.as_f32_mut() else {
                    continue;
                };
                for block in blocks {
                    let start = block.index() * elements;
                    let block = values.get_mut(start..start + elements);
                    block.into_iter().for_each(|block| block.fill(f32::NAN));
                }
            }
        }
    }
}

impl ReservedRow {
    /// Positions of the row that is kept.
    pub(super) fn winning_tokens(&self) -> usize {
        let branch = self.winner.checked_sub(1);
        let branch = branch.and_then(|branch| self.branches.get(branch));
        branch.map_or(self.tokens, Candidate::tokens)
    }

    /// Gives back what the losers hold. `Some` is the branch that won; then the own row has lost.
    pub(super) fn settle(&mut self, blocks: &mut BlockPool) -> Option<Candidate> {
        let mut winner = None;
        for (branch, candidate) in self.branches.drain(..).enumerate().rev() {
            if self.winner == branch + 1 {
                winner = Some(candidate);
            } else {
                candidate.discard(blocks);
            }
        }
        if winner.is_some() {
            blocks.give_back(&self.taken);
            self.taken.clear();
        }
        winner
    }
}
