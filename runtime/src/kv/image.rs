//! Committed positions as values, out of the blocks and into them.

use super::blocks::BlockId;
use super::error::KvError;
use super::pool::{BlockTable, KvPool};
use super::reservation::KvReservation;
use crate::device::Buffer;
use crate::ids::RequestId;

/// Keys and values of one layer, `[positions, kv_heads, head_dim]` each, in the order of positions.
pub(crate) type LayerRows = (Vec<f32>, Vec<f32>);

impl KvPool {
    /// Keys and values of the committed positions of a resident request, per layer in manifest order.
    ///
    /// # Errors
    /// Requests without a table, and memory that the host cannot read.
    pub(crate) fn committed_rows(&self, request: RequestId) -> Result<Vec<LayerRows>, KvError> {
        let table = self.table(request).ok_or(KvError::Unknown(request))?;
        let layers = self.buffers.iter().enumerate();
        layers
            .map(|(layer, buffers)| {
                let key = self.positions(table, layer, &buffers.key)?;
                Ok((key, self.positions(table, layer, &buffers.value)?))
            })
            .collect()
    }

    fn positions(
        &self,
        table: &BlockTable,
        layer: usize,
        buffer: &Buffer,
    ) -> Result<Vec<f32>, KvError> {
        let position = buffer.row_elements() / self.block_size;
        let mut found = Vec::with_capacity(table.committed * position);
        for block in &table.blocks {
            let block = block.index();
            let values = buffer.row_f32(block);
            let values = values.map_err(|_| KvError::Memory { layer, block })?;
            let left = table.committed * position - found.len();
            found.extend(values.iter().take(left));
        }
        Ok(found)
    }
}

impl KvReservation<'_> {
    /// Writes the positions of an admission's row, from the first on: the counterpart of [`KvPool::committed_rows`].
    ///
    /// # Errors
    /// Rows outside the step, other numbers of layers or positions than reserved, memory that the host cannot write.
    pub(crate) fn write_rows(&mut self, row: usize, layers: &[LayerRows]) -> Result<(), KvError> {
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
        for (layer, (buffers, (key, value))) in self.pool.buffers.iter_mut().zip(layers).enumerate()
        {
            for (buffer, values) in [(&mut buffers.key, key), (&mut buffers.value, value)] {
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
