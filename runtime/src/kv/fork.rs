//! A table that begins as a copy of another. Full blocks are shared: nobody writes below a committed length, so a block
//! that is full is never written again. The block that both would go on to fill is copied.

use super::error::KvError;
use super::pool::KvPool;
use super::reservation::{KvReservation, ReservedRow};
use crate::device::Buffer;
use crate::ids::RequestId;
use crate::txn::Seat;

impl KvPool {
    /// Blocks that a table of its own for the first `tokens` positions of another takes: the one that is filled in part.
    pub(crate) fn fork_blocks(&self, tokens: usize) -> usize {
        usize::from(!tokens.is_multiple_of(self.block_size))
    }

    /// Gives `to` the first `tokens` positions of `from`, with at most one block more than before in use. The result is
    /// the reservation of one admission, which keeps them all when it is published; dropping it undoes it.
    ///
    /// # Errors
    /// [`KvError::OutOfBlocks`] when it can be tried later; positions that `from` has not committed; other mistakes of
    /// the caller; memory that the host cannot reach. Nothing changes on error.
    pub(crate) fn reserve_fork(
        &mut self,
        from: RequestId,
        to: RequestId,
        tokens: usize,
    ) -> Result<Seat<KvReservation<'_>>, KvError> {
        let table = self.tables.get(&from).ok_or(KvError::Unknown(from))?;
        if self.tables.contains_key(&to) {
            return Err(KvError::Duplicate(to));
        }
        if tokens > table.committed {
            return Err(KvError::Beyond {
                request: from,
                tokens,
                committed: table.committed,
            });
        }
        let shared = tokens / self.block_size;
        let needed = self.fork_blocks(tokens);
        let mut taken = table.blocks.get(..shared).unwrap_or_default().to_vec();
        let tail = table.blocks.get(shared).copied();
        let free = self.blocks.free().len();
        let fresh = self.blocks.take(needed);
        let fresh = fresh.ok_or(KvError::OutOfBlocks { needed, free })?;
        self.blocks.share(&taken);
        taken.extend(fresh);
        self.tables.reserve(1);
        let row = ReservedRow {
            request: to,
            new: true,
            past: 0,
            tokens,
            owned: 0,
            taken,
            shared,
            branches: Vec::new(),
            winner: 0,
            kept: None,
        };
        let copied = tail.zip(row.taken.get(shared).copied());
        let mut reservation = Seat::new(KvReservation {
            pool: self,
            rows: vec![row],
        });
        if let Some((from, into)) = copied {
            let pool = &mut *reservation.pool;
            let positions = tokens % pool.block_size;
            pool.copy_positions(from.index(), into.index(), positions)?;
        }
        Ok(reservation)
    }

    /// Copies the first `positions` of one block to another, in every layer.
    pub(super) fn copy_positions(
        &mut self,
        from: usize,
        to: usize,
        positions: usize,
    ) -> Result<(), KvError> {
        let block_size = self.block_size;
        for (layer, buffers) in self.buffers.iter_mut().enumerate() {
            for buffer in [&mut buffers.key, &mut buffers.value] {
                let block = to;
                copy(buffer, block_size, (from, to), positions)
                    .ok_or(KvError::Memory { layer, block })?;
            }
        }
        Ok(())
    }
}

fn copy(
    buffer: &mut Buffer,
    block_size: usize,
    (from, to): (usize, usize),
    positions: usize,
) -> Option<()> {
    let block = buffer.row_elements();
    let count = block / block_size * positions;
    let (source, target) = (from * block, to * block);
    let values = buffer.as_f32_mut()?;
    let fits = source.max(target) + count <= values.len();
    fits.then(|| values.copy_within(source..source + count, target))
}
