//! Inputs and outputs of a running node.
//!
//! A step runs each node for a few microseconds, so values are read with the calls of ONNX Runtime that hand out what
//! the tensor already holds: nothing is allocated, and an input that is not asked for is not looked at.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use ort::operator::ComputeContext;
use ort::sys::{ONNXTensorElementDataType, OrtValue};
use ort::value::{PrimitiveTensorElementType, TensorElementType};
use ort::{AsPointer, ortsys};

use super::error::KernelError;
use super::memory::Cells;

/// The inputs of a running node.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'c> {
    context: &'c ComputeContext,
    count: usize,
}

/// One input.
#[derive(Clone, Copy)]
pub(super) struct Input<'v, T> {
    name: &'static str,
    shape: &'v [i64],
    /// Row-major elements.
    pub(super) data: &'v [T],
}

/// A tensor in host memory.
#[derive(Clone, Copy)]
struct RawTensor<'c> {
    element: ONNXTensorElementDataType,
    shape: &'c [i64],
    start: NonNull<u8>,
}

impl<'c> RawTensor<'c> {
    /// Reads what a tensor value says of itself.
    ///
    /// # Safety
    /// `value` is a tensor in host memory that stays, with its shape, for `'c`.
    unsafe fn read(value: NonNull<OrtValue>) -> ort::Result<Self> {
        let value = value.as_ptr();
        let mut element = ONNXTensorElementDataType::ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
        let (mut axes, mut rank) = (std::ptr::null(), 0);
        ortsys![unsafe GetTensorElementTypeAndShapeDataReference(value, &mut element, &mut axes, &mut rank)?];
        let mut start = std::ptr::null_mut();
        ortsys![unsafe GetTensorMutableData(value, &mut start)?];
        let shape = match NonNull::new(axes.cast_mut()) {
            // SAFETY: the value holds `rank` extents for as long as it stays.
            Some(axes) => unsafe { std::slice::from_raw_parts(axes.as_ptr(), rank) },
            None => &[],
        };
        // An empty tensor may have no memory.
        let start = NonNull::new(start.cast()).unwrap_or_else(NonNull::dangling);
        Ok(Self {
            element,
            shape,
            start,
        })
    }

    fn refuse_other_than(
        &self,
        expected: TensorElementType,
        name: impl std::fmt::Display,
    ) -> Result<(), KernelError> {
        if self.element == expected.into() {
            return Ok(());
        }
        let found = TensorElementType::from(self.element);
        Err(KernelError::Runtime(format!(
            "`{name}` must be {expected}, found {found}"
        )))
    }

    /// Elements, counted from the shape.
    fn len(&self) -> usize {
        let extents = self.shape.iter().map(|&d| usize::try_from(d).unwrap_or(0));
        extents.fold(1, usize::saturating_mul)
    }
}

impl<'c> Inputs<'c> {
    /// The inputs of the node that runs in `context`.
    pub(super) fn read(context: &'c ComputeContext) -> Result<Self, KernelError> {
        let count = context.num_inputs()?;
        Ok(Self { context, count })
    }

    fn value(&self, index: usize) -> Result<Option<RawTensor<'c>>, KernelError> {
        if index >= self.count {
            return Ok(None);
        }
        let mut value = std::ptr::null();
        ortsys![unsafe KernelContext_GetInput(self.context.ptr(), index, &mut value)?];
        NonNull::new(value.cast_mut())
            // SAFETY: inputs of a node on the CPU provider are tensors in host memory, and stay while it runs.
            .map(|value| unsafe { RawTensor::read(value) })
            .transpose()
            .map_err(KernelError::from)
    }

    /// An input that may be absent.
    pub(super) fn optional<T: PrimitiveTensorElementType>(
        &self,
        index: usize,
        name: &'static str,
    ) -> Result<Option<Input<'c, T>>, KernelError> {
        let Some(value) = self.value(index)? else {
            return Ok(None);
        };
        value.refuse_other_than(T::into_tensor_element_type(), name)?;
        // SAFETY: the elements are of this type, as many as the shape says, and are not written while the node runs:
        // an input that shares memory with an output is only handled through `in_place`.
        let data =
            unsafe { std::slice::from_raw_parts(value.start.as_ptr().cast::<T>(), value.len()) };
        let shape = value.shape;
        Ok(Some(Input { name, shape, data }))
    }

    /// An input that must be there.
    pub(super) fn required<T: PrimitiveTensorElementType>(
        &self,
        index: usize,
        name: &'static str,
    ) -> Result<Input<'c, T>, KernelError> {
        self.optional(index, name)?
            .ok_or(KernelError::Missing { name })
    }

    /// A float32 input whose elements are not looked at.
    fn bank(&self, index: usize, name: &'static str) -> Result<RawTensor<'c>, KernelError> {
        let value = self.value(index)?.ok_or(KernelError::Missing { name })?;
        value.refuse_other_than(TensorElementType::Float32, name)?;
        Ok(value)
    }

    /// Extents of a float32 input that is also written.
    pub(super) fn bank_dims<const N: usize>(
        &self,
        index: usize,
        name: &'static str,
        axes: &'static str,
    ) -> Result<[usize; N], KernelError> {
        dims(name, self.bank(index, name)?.shape, axes)
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
        let target = output_of_shape(context, output, source.shape)?;
        let target = target.ok_or(KernelError::Missing { name })?;
        let from = source.start.as_ptr().cast::<f32>();
        if from.cast_const() != target.as_ptr() && target.len() > 0 {
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
    let refuse = || KernelError::Shape {
        name,
        expected: axes.to_owned(),
        found: shape.to_vec(),
    };
    let mut extents = [0; N];
    if shape.len() != N {
        return Err(refuse());
    }
    for (extent, &d) in extents.iter_mut().zip(shape) {
        *extent = usize::try_from(d).map_err(|_| refuse())?;
    }
    Ok(extents)
}

/// The memory of a float32 output of this shape, or none when the node leaves it out.
pub(super) fn optional_output<'c, const N: usize>(
    context: &'c ComputeContext,
    index: usize,
    extents: &[usize; N],
) -> Result<Option<Cells<'c>>, KernelError> {
    let shape = extents.map(|extent| i64::try_from(extent).unwrap_or(i64::MAX));
    output_of_shape(context, index, &shape)
}

/// The memory of a float32 output of this shape.
pub(super) fn required_output<'c, const N: usize>(
    context: &'c ComputeContext,
    index: usize,
    name: &'static str,
    extents: &[usize; N],
) -> Result<Cells<'c>, KernelError> {
    optional_output(context, index, extents)?.ok_or(KernelError::Missing { name })
}

fn output_of_shape<'c>(
    context: &'c ComputeContext,
    index: usize,
    shape: &[i64],
) -> Result<Option<Cells<'c>>, KernelError> {
    if index >= context.num_outputs()? {
        return Ok(None);
    }
    let mut value = std::ptr::null_mut();
    ortsys![unsafe KernelContext_GetOutput(context.ptr().cast_mut(), index, shape.as_ptr(), shape.len(), &mut value)?];
    let Some(value) = NonNull::new(value) else {
        return Ok(None);
    };
    // SAFETY: outputs of a node on the CPU provider are tensors in host memory, and stay while it runs.
    let value = unsafe { RawTensor::read(value) }?;
    value.refuse_other_than(TensorElementType::Float32, format_args!("output {index}"))?;
    let start = value.start.as_ptr().cast::<f32>();
    // SAFETY: ONNX Runtime allocated that many floats, and no slice of them exists: an input that shares them is only
    // handled through `in_place`.
    Ok(Some(unsafe { Cells::from_raw(start, value.len()) }))
}
