//! The paged cache: block tensors per layer, one block table per request.

use super::blocks::{BlockId, BlockPool};
use super::error::{KvError, KvPoolError};
use super::reservation::{KvReservation, KvRow};
use crate::device::{Buffer, Device, ElementType};
use crate::ids::RequestId;
use crate::model::spec::{PagedBuffers, PagedSpec};
use crate::txn::{Permit, Seat};
use std::collections::HashMap;

/// Key/value cache of one graph. What lies beyond a table's committed length is never read, so nothing is ever
/// rolled back in the tensors.
#[derive(Debug)]
pub(crate) struct KvPool {
    pub(super) block_size: usize,
    pub(super) blocks: BlockPool,
    pub(super) tables: HashMap<RequestId, BlockTable>,
    pub(super) buffers: Vec<PagedBuffers>,
}

/// Where the tokens of one request lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockTable {
    /// In the order of positions; exactly as many as the committed tokens need.
    pub(crate) blocks: Vec<BlockId>,
    /// Positions below are valid.
    pub(crate) committed: usize,
}

/// What one layer of the cache holds of a request, copied out: `[committed, kv_heads, head_dim]` each.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeysValues {
    /// Row-major.
    pub(crate) keys: Vec<f32>,
    /// Row-major.
    pub(crate) values: Vec<f32>,
}

impl KvPool {
    /// Allocates key and value tensors `[blocks, block_size, kv_heads, head_dim]` per layer.
    ///
    /// # Errors
    /// When the extents are impossible or the device refuses.
    pub(crate) fn new(
        spec: &PagedSpec,
        blocks: usize,
        device: &dyn Device,
    ) -> Result<Self, KvPoolError> {
        let extent = || KvPoolError::Extent {
            blocks,
            block_size: spec.block_size,
        };
        if blocks == 0 || spec.block_size == 0 || blocks.checked_mul(spec.block_size).is_none() {
            return Err(extent());
        }
        let pool = BlockPool::new(blocks).ok_or_else(extent)?;
        let shape = [blocks, spec.block_size, spec.kv_heads, spec.head_dim];
        let tensor = |name: &str| {
            device
                .allocate(ElementType::F32, &shape)
                .map_err(|source| KvPoolError::Device {
                    name: name.to_owned(),
                    source,
                })
        };
        let mut buffers = Vec::with_capacity(spec.layers.len());
        for layer in &spec.layers {
            let (key, value) = (tensor(&layer.key_input)?, tensor(&layer.value_input)?);
            buffers.push(PagedBuffers { key, value });
        }
        Ok(Self {
            block_size: spec.block_size,
            blocks: pool,
            tables: HashMap::new(),
            buffers,
        })
    }

    /// Tokens per block.
    pub(crate) fn block_size(&self) -> usize {
        self.block_size
    }

    /// Blocks of the cache and their users.
    pub(crate) fn blocks(&self) -> &BlockPool {
        &self.blocks
    }

    /// The table of a resident request.
    pub(crate) fn table(&self, request: RequestId) -> Option<&BlockTable> {
        self.tables.get(&request)
    }

    /// The committed positions of a resident request, per layer in manifest order.
    ///
    /// # Errors
    /// Requests without a table, and memory that the host cannot read.
    pub(crate) fn committed_rows(&self, request: RequestId) -> Result<Vec<KeysValues>, KvError> {
        let table = self.table(request).ok_or(KvError::Unknown(request))?;
        let layers = self.buffers.iter().enumerate();
        layers
            .map(|(layer, buffers)| {
                let keys = self.positions(table, layer, &buffers.key)?;
                let values = self.positions(table, layer, &buffers.value)?;
                Ok(KeysValues { keys, values })
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

    /// All tables, in no particular order.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (RequestId, &BlockTable)> {
        self.tables.iter().map(|(request, table)| (*request, table))
    }

    /// Takes the blocks that `rows`, in batch order, need beyond what they own. Dropping the result gives them back.
    ///
    /// # Errors
    /// [`KvError::OutOfBlocks`] when the step can be tried later, [`KvError::Unserviceable`] when it never fits; other
    /// errors are mistakes of the caller. Nothing changes on error.
    pub(crate) fn reserve(&mut self, rows: &[KvRow]) -> Result<Seat<KvReservation<'_>>, KvError> {
        Ok(Seat::new(KvReservation::new(self, rows)?))
    }

    /// Gives the table of `from` to `to`, which has none. A request without a table changes nothing.
    pub(crate) fn transfer(&mut self, from: RequestId, to: RequestId, _permit: &Permit) {
        if let Some(table) = self.tables.remove(&from) {
            self.tables.insert(to, table);
        }
    }

    /// Forgets a request and gives its blocks back. A request without a table changes nothing.
    pub(crate) fn release(&mut self, request: RequestId, _permit: &Permit) {
        if let Some(table) = self.tables.remove(&request) {
            self.blocks.give_back(&table.blocks);
        }
    }
}
