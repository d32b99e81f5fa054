//! Fixed rows as values, out of a slot and into one.

use super::error::StateError;
use super::handle::SlotHandle;
use super::reservation::StateReservation;
use super::slot::Slot;
use crate::device::ElementType;
use crate::ids::RequestId;
use crate::model::Lost;
use std::borrow::Cow;

/// One row of a tensor, as the bytes of its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowBytes<'a> {
    /// What it consists of.
    pub(crate) element: ElementType,
    /// The elements, as the machine stores them.
    pub(crate) bytes: Cow<'a, [u8]>,
}

impl RowBytes<'_> {
    /// The row as numbers: ids of a history are exact up to 2^24. Empty for types that only other devices compute with.
    pub(crate) fn numbers(&self) -> Vec<f32> {
        match self.element {
            ElementType::F32 => each(&self.bytes, f32::from_ne_bytes),
            ElementType::I32 => each(&self.bytes, |id| i32::from_ne_bytes(id) as f32),
            ElementType::I64 => each(&self.bytes, |id| i64::from_ne_bytes(id) as f32),
            ElementType::F16 | ElementType::Bf16 | ElementType::I8 => Vec::new(),
        }
    }
}

fn each<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    bytes
        .as_chunks::<N>()
        .0
        .iter()
        .copied()
        .map(number)
        .collect()
}

impl StateReservation<'_> {
    /// Writes the rows of an admission, one per tensor in manifest order: the counterpart of
    /// [`super::StatePool::committed_rows`].
    ///
    /// # Errors
    /// Rows outside the step; other numbers of tensors or bytes; memory that the host cannot write.
    pub(crate) fn write_rows(&mut self, row: usize, values: &[Vec<u8>]) -> Result<(), StateError> {
        let write = self.write_row(row)?;
        let tensors = self.pool.buffers.len();
        if values.len() != tensors {
            let tensor = tensors.min(values.len());
            return Err(StateError::Memory { tensor, row });
        }
        for (tensor, (buffers, values)) in self.pool.buffers.iter_mut().zip(values).enumerate() {
            let target = buffers.bank.row_bytes_mut(write);
            let target = target.filter(|target| target.len() == values.len());
            target
                .ok_or(StateError::Memory { tensor, row })?
                .copy_from_slice(values);
        }
        Ok(())
    }

    /// Copies the committed rows of another slot into the row of an admission.
    ///
    /// # Errors
    /// Rows outside the step; slots that hold no committed state; memory that the host cannot reach.
    pub(crate) fn copy_rows(
        &mut self,
        row: usize,
        (from, handle): (RequestId, SlotHandle),
    ) -> Result<(), StateError> {
        let write = self.write_row(row)?;
        let Slot::Committed { active, .. } = self.pool.entry(from, handle)?.slot else {
            return Err(StateError::Stale(from));
        };
        let read = self.pool.layout.row(active, handle.index);
        for (tensor, buffers) in self.pool.buffers.iter_mut().enumerate() {
            let settled = buffers.settle_row(read);
            settled.map_err(|Lost| StateError::Lost { tensor })?;
            let copied = buffers.bank.copy_row(read, write);
            copied.ok_or(StateError::Memory { tensor, row })?;
        }
        Ok(())
    }
}
