//! ONNX Runtime values over memory that Pawl owns: no copy in either direction.

#![allow(unsafe_code)]

use crate::device::host_memory;
use crate::model::tensor_spec::DataType;
use ort::memory::MemoryInfo;
use ort::sys::{ONNXTensorElementDataType as OrtType, OrtValue};
use ort::{AsPointer, ortsys};
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// Element types of the vectors that a step passes.
pub(crate) trait Element: Copy {
    /// The ONNX type of the same layout.
    const TYPE: DataType;
}

impl Element for f32 {
    const TYPE: DataType = DataType::F32;
}
impl Element for i64 {
    const TYPE: DataType = DataType::I64;
}
impl Element for i32 {
    const TYPE: DataType = DataType::I32;
}

/// A tensor over foreign memory. `'a` is the borrow of that memory; `'static` values are made by [`Self::over`]
/// for memory whose owner outlives them.
#[derive(Debug)]
pub(crate) struct TensorValue<'a> {
    value: NonNull<OrtValue>,
    writable: bool,
    memory: PhantomData<&'a mut [u8]>,
}

// SAFETY: an OrtValue has no thread affinity and is never changed after it was made; the memory behind it is used
// only by `Run`, which needs exclusive access to the session and to the buffers' owner.
unsafe impl Send for TensorValue<'_> {}
// SAFETY: as above.
unsafe impl Sync for TensorValue<'_> {}

impl<'a> TensorValue<'a> {
    /// A tensor of `shape` to read from `data`, row-major.
    pub(crate) fn input<T: Element>(data: &'a [T], shape: &[usize]) -> ort::Result<Self> {
        check(data.len(), shape)?;
        let pointer = data.as_ptr().cast_mut().cast();
        // SAFETY: the memory is borrowed for 'a and holds exactly the elements of the shape; a value that is not
        // writable is never passed as an output.
        unsafe {
            Self::create(
                host_memory()?,
                pointer,
                size_of_val(data),
                T::TYPE,
                shape,
                false,
            )
        }
    }

    /// A tensor of `shape` to write to `data`, row-major.
    pub(crate) fn output<T: Element>(data: &'a mut [T], shape: &[usize]) -> ort::Result<Self> {
        check(data.len(), shape)?;
        let (pointer, bytes) = (data.as_mut_ptr().cast(), size_of_val(data));
        // SAFETY: as in `input`, and the borrow is exclusive.
        unsafe { Self::create(host_memory()?, pointer, bytes, T::TYPE, shape, true) }
    }

    /// A tensor over `bytes` bytes at `data`, in the memory that `place` describes.
    ///
    /// # Safety
    /// The memory must stay allocated while the value is used, must not be used otherwise during a run that it takes
    /// part in, and must be writable if `writable`.
    pub(crate) unsafe fn over(
        place: &MemoryInfo<'_>,
        data: *mut u8,
        bytes: usize,
        data_type: DataType,
        shape: &[usize],
        writable: bool,
    ) -> ort::Result<TensorValue<'static>> {
        // SAFETY: the caller's promise.
        unsafe { TensorValue::create(place, data, bytes, data_type, shape, writable) }
    }

    unsafe fn create(
        place: &MemoryInfo<'_>,
        data: *mut u8,
        bytes: usize,
        data_type: DataType,
        shape: &[usize],
        writable: bool,
    ) -> ort::Result<Self> {
        let needed = shape
            .iter()
            .try_fold(1u64, |n, d| n.checked_mul(u64::try_from(*d).ok()?))
            .and_then(|count| data_type.bytes(count));
        if needed != u64::try_from(bytes).ok() {
            return Err(ort::Error::new(format!(
                "a {data_type} tensor of shape {shape:?} does not have {bytes} bytes"
            )));
        }
        let extents: Vec<i64> = shape
            .iter()
            .map(|d| i64::try_from(*d).unwrap_or(i64::MAX))
            .collect();
        let kind = ort_type(data_type)?;
        let mut value: *mut OrtValue = std::ptr::null_mut();
        ortsys![unsafe CreateTensorWithDataAsOrtValue(
            place.ptr(),
            data.cast::<c_void>(),
            bytes,
            extents.as_ptr(),
            extents.len(),
            kind,
            &mut value
        )?];
        let value = NonNull::new(value).ok_or_else(|| ort::Error::new("no value was made"))?;
        Ok(Self {
            value,
            writable,
            memory: PhantomData,
        })
    }

    /// The value, to read.
    pub(super) fn as_input(&self) -> *const OrtValue {
        self.value.as_ptr()
    }

    /// The value, to write; `None` if it may not be written.
    pub(super) fn as_output(&self) -> Option<*mut OrtValue> {
        self.writable.then_some(self.value.as_ptr())
    }
}

impl Drop for TensorValue<'_> {
    fn drop(&mut self) {
        ortsys![unsafe ReleaseValue(self.value.as_ptr())];
    }
}

fn check(len: usize, shape: &[usize]) -> ort::Result<()> {
    let count = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
    if count == Some(len) {
        return Ok(());
    }
    Err(ort::Error::new(format!(
        "{len} elements do not fill a tensor of shape {shape:?}"
    )))
}

fn ort_type(data_type: DataType) -> ort::Result<OrtType> {
    Ok(match data_type.0 {
        1 => OrtType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
        2 => OrtType::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8,
        3 => OrtType::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8,
        4 => OrtType::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16,
        5 => OrtType::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16,
        6 => OrtType::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,
        7 => OrtType::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,
        9 => OrtType::ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL,
        10 => OrtType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
        11 => OrtType::ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE,
        12 => OrtType::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32,
        13 => OrtType::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64,
        16 => OrtType::ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16,
        21 => OrtType::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT4,
        22 => OrtType::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT4,
        _ => {
            return Err(ort::Error::new(format!(
                "{data_type} tensors are not supported"
            )));
        }
    })
}
