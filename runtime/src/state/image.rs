//! Fixed rows as values, out of a slot and into one.

use super::error::StateError;
use super::handle::SlotHandle;
use super::reservation::StateReservation;
use super::slot::Slot;
use crate::ids::RequestId;

impl StateReservation<'_> {
    /// Writes the rows of an admission, one per tensor in manifest order: the counterpart of
    /// [`super::StatePool::committed_rows`].
    ///
    /// # Errors
    /// Rows outside the step; other numbers of tensors or elements; memory that the host cannot write.
    pub(crate) fn write_rows(&mut self, row: usize, values: &[Vec<f32>]) -> Result<(), StateError> {
        let write = self.write_row(row)?;
        let tensors = self.pool.buffers.len();
        if values.len() != tensors {
            let tensor = tensors.min(values.len());
            return Err(StateError::Memory { tensor, row });
        }
        for (tensor, (buffers, values)) in self.pool.buffers.iter_mut().zip(values).enumerate() {
            let elements = buffers.bank.row_elements();
            let target = buffers.bank.as_f32_mut();
            let target =
                target.and_then(|all| all.get_mut(write * elements..)?.get_mut(..elements));
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
            let elements = buffers.bank.row_elements();
            let all = buffers.bank.as_f32_mut();
            let all = all.filter(|all| (read.max(write) + 1) * elements <= all.len());
            all.ok_or(StateError::Memory { tensor, row })?
                .copy_within(read * elements..(read + 1) * elements, write * elements);
        }
        Ok(())
    }
}
