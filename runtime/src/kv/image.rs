//! Committed positions from values into blocks.

use super::blocks::BlockId;
use super::error::KvError;
use super::pool::KeysValues;
use super::reservation::KvReservation;
use crate::device::Buffer;

impl KvReservation<'_> {
    /// Writes the positions of an admission's row, from the first on: the counterpart of [`KvPool::committed_rows`](super::KvPool::committed_rows).
    ///
    /// # Errors
    /// Rows outside the step, other numbers of layers or positions than reserved, memory that the host cannot write.
    pub(crate) fn write_rows(&mut self, row: usize, layers: &[KeysValues]) -> Result<(), KvError> {
        let rows = self.rows.len();
        let unknown = KvError::UnknownRow { row, rows };
        let reserved = self.rows.get(row).ok_or(unknown)?;
        let found = layers.len();
        if found != self.pool.buffers.len() {
            return Err(KvError::Memory {
                layer: found,
                block: 0,
            });
        }
        let tokens = reserved.tokens;
        let size = self.pool.block_size;
        for (layer, (buffers, from)) in self.pool.buffers.iter_mut().zip(layers).enumerate() {
            for (buffer, values) in [
                (&mut buffers.key, &from.keys),
                (&mut buffers.value, &from.values),
            ] {
                let position = buffer.row_elements() / size;
                if values.len() != tokens * position {
                    return Err(KvError::Memory { layer, block: 0 });
                }
                scatter(buffer, &reserved.taken, values)
                    .map_err(|block| KvError::Memory { layer, block })?;
            }
        }
        Ok(())
    }
}

/// Writes values into blocks, one after the other. The error is a block that is not there.
fn scatter(buffer: &mut Buffer, blocks: &[BlockId], values: &[f32]) -> Result<(), usize> {
    let elements = buffer.row_elements();
    for (block, values) in blocks.iter().zip(values.chunks(elements.max(1))) {
        let start = block.index() * elements;
        let target = buffer
            .as_f32_mut()
            .and_then(|all| all.get_mut(start..start + values.len()));
        target.ok_or_else(|| block.index())?.copy_from_slice(values);
    }
    Ok(())
}
