//! Inputs and outputs of a running node.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use ort::operator::ComputeContext;
use ort::value::{DynTensorRef, DynTensorValueType, PrimitiveTensorElementType, TensorElementType};

use super::error::KernelError;
use super::memory::Cells;

/// The inputs of a running node.
pub(super) struct Inputs<'c> {
    values: Vec<Option<DynTensorRef<'c>>>,
}

/// One input.
#[derive(Clone, Copy)]
pub(super) struct Input<'v, T> {
    name: &'static str,
    shape: &'v [i64],
    /// Row-major elements.
    pub(super) data: &'v [T],
}

impl<'c> Inputs<'c> {
    /// Takes hold of all inputs.
    pub(super) fn read(context: &'c ComputeContext) -> Result<Self, KernelError> {
        let count = context.num_inputs()?;
        let mut values = Vec::with_capacity(count);
        for index in 0..count {
            let value = context.input(index)?;
            values.push(
                value
                    .map(|value| value.downcast::<DynTensorValueType>())
                    .transpose()?,
            );
        }
        Ok(Self { values })
    }

    fn value(&self, index: usize) -> Option<&DynTensorRef<'c>> {
        self.values.get(index).and_then(Option::as_ref)
    }

    /// An input that may be absent.
    pub(super) fn optional<T: PrimitiveTensorElementType>(
        &self,
        index: usize,
        name: &'static str,
    ) -> Result<Option<Input<'_, T>>, KernelError> {
        let Some(value) = self.value(index) else {
            return Ok(None);
        };
        let (shape, data) = value.try_extract_tensor::<T>()?;
        Ok(Some(Input { name, shape, data }))
    }

    /// An input that must be there.
    pub(super) fn required<T: PrimitiveTensorElementType>(
        &self,
        index: usize,
        name: &'static str,
    ) -> Result<Input<'_, T>, KernelError> {
        self.optional(index, name)?
            .ok_or(KernelError::Missing { name })
    }

    /// Shape of a float32 input whose elements are not looked at.
    fn bank(&self, index: usize, name: &'static str) -> Result<&DynTensorRef<'c>, KernelError> {
        let value = self.value(index).ok_or(KernelError::Missing { name })?;
        if *value.data_type() != TensorElementType::Float32 {
            return Err(KernelError::Runtime(format!("`{name}` must be float32")));
        }
        Ok(value)
    }

    /// Extents of a float32 input that is also written.
    pub(super) fn bank_dims<const N: usize>(
        &self,
        index: usize,
        name: &'static str,
        axes: &'static str,
    ) -> Result<[usize; N], KernelError> {
        dims(name, self.bank(index, name)?.shape(), axes)
    }

    /// The memory of output `output`, after copying input `index` there unless they are one.
    ///
    /// No slice of the input's memory may be alive.
    pub(super) fn in_place(
        &self,
        context: &'c ComputeContext,
        (index, output): (usize, usize),
        name: &'static str,
    ) -> Result<Cells<'c>, KernelError> {
        let source = self.bank(index, name)?;
        let extents: Vec<usize> = source
            .shape()
            .iter()
            .map(|&d| usize::try_from(d).unwrap_or(0))
            .collect();
        let target = required_output(context, output, name, &extents)?;
        let from = source.data_ptr().cast::<f32>();
        if from != target.as_ptr() && target.len() > 0 {
            // SAFETY: both tensors have `target.len()` elements, and `copy` lets them overlap.
            unsafe { std::ptr::copy(from, target.as_ptr().cast_mut(), target.len()) };
        }
        Ok(target)
    }
}

impl<'v, T> Input<'v, T> {
    /// Extents of a tensor of `N` axes.
    pub(super) fn dims<const N: usize>(
        &self,
        axes: &'static str,
    ) -> Result<[usize; N], KernelError> {
        dims(self.name, self.shape, axes)
    }

    /// The elements, if the tensor has this shape.
    pub(super) fn shaped(&self, extents: &[usize]) -> Result<&'v [T], KernelError> {
        let same = self.shape.len() == extents.len()
            && self
                .shape
                .iter()
                .zip(extents)
                .all(|(&a, &b)| usize::try_from(a) == Ok(b));
        if same {
            return Ok(self.data);
        }
        let (expected, found) = (format!("{extents:?}"), self.shape.to_vec());
        Err(KernelError::Shape {
            name: self.name,
            expected,
            found,
        })
    }
}

fn dims<const N: usize>(
    name: &'static str,
    shape: &[i64],
    axes: &'static str,
) -> Result<[usize; N], KernelError> {
    let extents: Vec<usize> = shape
        .iter()
        .filter_map(|&d| usize::try_from(d).ok())
        .collect();
    <[usize; N]>::try_from(extents).map_err(|_| KernelError::Shape {
        name,
        expected: axes.to_owned(),
        found: shape.to_vec(),
    })
}

/// The memory of a float32 output of this shape, or none when the node leaves it out.
pub(super) fn optional_output<'c>(
    context: &'c ComputeContext,
    index: usize,
    extents: &[usize],
) -> Result<Option<Cells<'c>>, KernelError> {
    if index >= context.num_outputs()? {
        return Ok(None);
    }
    let Some(value) = context.output(index, extents)? else {
        return Ok(None);
    };
    let value = value.downcast::<DynTensorValueType>()?;
    if *value.data_type() != TensorElementType::Float32 {
        return Err(KernelError::Runtime(format!(
            "output {index} must be float32"
        )));
    }
    let len = extents.iter().product();
    let start =
        NonNull::new(value.data_ptr().cast_mut().cast::<f32>()).unwrap_or_else(NonNull::dangling);
    // SAFETY: ONNX Runtime allocated `len` floats that stay until the node has run, and no slice of
    // them exists: an input that shares them is only handled through `in_place`.
    Ok(Some(unsafe { Cells::from_raw(start.as_ptr(), len) }))
}

/// The memory of a float32 output of this shape.
pub(super) fn required_output<'c>(
    context: &'c ComputeContext,
    index: usize,
    name: &'static str,
    extents: &[usize],
) -> Result<Cells<'c>, KernelError> {
    optional_output(context, index, extents)?.ok_or(KernelError::Missing { name })
}
