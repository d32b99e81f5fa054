//! A value over a persistent buffer, made once and kept while the buffer stays the same.

#![allow(unsafe_code)]

use super::tensor_value::TensorValue;
use crate::device::Buffer;

/// The value of one buffer, or of its front. Making a value costs as much as a small operator, so it is kept from
/// step to step; every step compares pointer and shape first.
#[derive(Debug, Default)]
pub(crate) struct BufferValue {
    made: Option<Made>,
}

#[derive(Debug)]
struct Made {
    address: usize,
    shape: Vec<usize>,
    value: TensorValue<'static>,
}

impl BufferValue {
    /// Makes the value over the whole buffer.
    pub(crate) fn bind(&mut self, buffer: &mut Buffer) -> ort::Result<()> {
        if !self.stands_for(buffer, None) {
            let (shape, bytes) = (buffer.shape().to_vec(), buffer.bytes());
            self.make(buffer, shape, bytes)?;
        }
        Ok(())
    }

    /// Makes the value over the first elements of the buffer, viewed as `shape`.
    pub(crate) fn bind_front(&mut self, buffer: &mut Buffer, shape: &[usize]) -> ort::Result<()> {
        let count = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
        let bytes = count.and_then(|n| n.checked_mul(buffer.element().size()));
        let bytes = bytes
            .filter(|bytes| *bytes <= buffer.bytes())
            .ok_or_else(|| {
                ort::Error::new(format!(
                    "a buffer of shape {:?} is smaller than {shape:?}",
                    buffer.shape()
                ))
            })?;
        if !self.stands_for(buffer, Some(shape)) {
            self.make(buffer, shape.to_vec(), bytes)?;
        }
        Ok(())
    }

    /// The value, after it was bound in this step.
    pub(crate) fn get(&self) -> ort::Result<&TensorValue<'static>> {
        match &self.made {
            Some(made) => Ok(&made.value),
            None => Err(ort::Error::new("a state buffer is not bound")),
        }
    }

    fn stands_for(&self, buffer: &mut Buffer, shape: Option<&[usize]>) -> bool {
        let address = buffer.as_mut_ptr().addr();
        self.made.as_ref().is_some_and(|made| {
            made.address == address && made.shape == shape.unwrap_or(buffer.shape())
        })
    }

    fn make(&mut self, buffer: &mut Buffer, shape: Vec<usize>, bytes: usize) -> ort::Result<()> {
        self.made = None;
        let pointer = buffer.as_mut_ptr();
        let data_type = buffer.element().into();
        let place = buffer.place()?;
        // SAFETY: the value is passed to `Run` only by `Decoder::run` and `CommitGraphs::run`, which bind it to a buffer that they have borrowed
        // exclusively for the whole call, so the memory is allocated and nothing else uses it.
        let value = unsafe { TensorValue::over(place, pointer, bytes, data_type, &shape, true) }?;
        self.made = Some(Made {
            address: pointer.addr(),
            shape,
            value,
        });
        Ok(())
    }
}
