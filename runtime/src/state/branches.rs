//! Rows that branch off the state of another row of the step, and which of them is kept.

use super::error::StateError;
use super::reservation::{Run, StateReservation};
use std::num::NonZeroUsize;

impl StateReservation<'_> {
    /// Adds a candidate row to a row of the step: it reads the same committed state, captures all of its tokens and writes
    /// no final state. In the batch it follows the row and the branches that it has already.
    ///
    /// # Errors
    /// Rows outside the step; more rows than the staging was planned for; more tokens than the checkpoint outputs hold.
    pub(crate) fn reserve_branch(
        &mut self,
        row: usize,
        tokens: NonZeroUsize,
    ) -> Result<(), StateError> {
        let (rows, max_rows) = (self.batch_rows() + 1, self.pool.max_rows);
        if rows > max_rows {
            return Err(StateError::TooManyRows { rows, max_rows });
        }
        let capacity = self.pool.capture_capacity();
        let rows = self.rows.len();
        let reserved = self.rows.get_mut(row);
        let reserved = reserved.ok_or(StateError::UnknownRow { row, rows })?;
        let tokens = tokens.get();
        if tokens > capacity {
            return Err(StateError::Capture {
                request: reserved.request(),
                tokens,
                captured: tokens,
                capacity,
            });
        }
        reserved.branches.push(Run {
            tokens,
            captured: tokens,
            final_written: false,
        });
        for buffers in &mut self.pool.buffers {
            buffers.poison_checkpoints(usize::MAX);
        }
        Ok(())
    }

    /// Decides, before its prefix is, which candidate of a row is kept: 0 for the own row, `i` for branch `i - 1`.
    ///
    /// # Errors
    /// Rows outside the step, and candidates that the row does not have.
    pub(crate) fn elect(&mut self, row: usize, candidate: usize) -> Result<(), StateError> {
        let rows = self.rows.len();
        let reserved = self.rows.get_mut(row);
        let reserved = reserved.ok_or(StateError::UnknownRow { row, rows })?;
        let candidates = reserved.branches.len() + 1;
        if candidate >= candidates {
            return Err(StateError::UnknownRow {
                row: candidate,
                rows: candidates,
            });
        }
        reserved.winner = candidate;
        Ok(())
    }

    /// Rows of the batch: those of the step and their branches.
    pub(super) fn batch_rows(&self) -> usize {
        self.rows.iter().map(|row| row.runs().count()).sum()
    }
}
