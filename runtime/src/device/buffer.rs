//! One tensor of persistent memory.

#![allow(unsafe_code)]

use super::host_memory;
use memmap2::MmapMut;
use ort::memory::MemoryInfo;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Element type of a [`Buffer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ElementType {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// Brain float.
    Bf16,
    /// 64-bit signed integer.
    I64,
    /// 32-bit signed integer.
    I32,
    /// 8-bit signed integer.
    I8,
}

impl ElementType {
    /// Bytes of one element.
    pub(crate) const fn size(self) -> usize {
        match self {
            Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::I8 => 1,
        }
    }

    /// Name as messages and plans print it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
            Self::I64 => "int64",
            Self::I32 => "int32",
            Self::I8 => "int8",
        }
    }
}

/// Why memory could not be had or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum DeviceError {
    /// The allocator refused.
    #[error("cannot allocate {bytes} bytes for a {element} tensor of shape {shape:?}")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
        /// Element type name.
        element: &'static str,
        /// Shape asked for.
        shape: Vec<usize>,
    },
    /// The shape has more bytes than the address space.
    #[error("a {element} tensor of shape {shape:?} is larger than the address space")]
    TooLarge {
        /// Element type name.
        element: &'static str,
        /// Shape asked for.
        shape: Vec<usize>,
    },
    /// A row outside the buffer, or a row of another size or type.
    #[error("row {row} of {len} elements does not fit a {element} buffer of shape {shape:?}")]
    Row {
        /// Row asked for.
        row: usize,
        /// Elements asked for.
        len: usize,
        /// Element type name.
        element: &'static str,
        /// Shape of the buffer.
        shape: Vec<usize>,
    },
}

/// One tensor of persistent, zero-initialised memory. The leading axis counts rows.
#[derive(Debug)]
pub(crate) struct Buffer {
    element: ElementType,
    shape: Vec<usize>,
    row_elements: usize,
    bytes: usize,
    memory: Memory,
}

/// Where the bytes are.
#[derive(Debug)]
enum Memory {
    Host(HostMemory),
    #[cfg(feature = "cuda")]
    Cuda(super::cuda::CudaMemory),
}

impl Buffer {
    /// Allocates on the host, 64-byte aligned, zeroed lazily by the operating system where it can.
    pub(crate) fn host(element: ElementType, shape: &[usize]) -> Result<Self, DeviceError> {
        Self::new(element, shape, |bytes| {
            HostMemory::zeroed(bytes).map(Memory::Host)
        })
    }

    /// Takes memory of a GPU from `allocate`, which is given the bytes.
    #[cfg(feature = "cuda")]
    pub(super) fn cuda(
        element: ElementType,
        shape: &[usize],
        allocate: impl FnOnce(usize) -> Option<super::cuda::CudaMemory>,
    ) -> Result<Self, DeviceError> {
        Self::new(element, shape, |bytes| allocate(bytes).map(Memory::Cuda))
    }

    fn new(
        element: ElementType,
        shape: &[usize],
        allocate: impl FnOnce(usize) -> Option<Memory>,
    ) -> Result<Self, DeviceError> {
        let too_large = || DeviceError::TooLarge {
            element: element.name(),
            shape: shape.to_vec(),
        };
        let row_elements = shape
            .iter()
            .skip(1)
            .try_fold(1usize, |n, d| n.checked_mul(*d))
            .ok_or_else(too_large)?;
        let bytes = row_elements
            .checked_mul(shape.first().copied().unwrap_or(1))
            .and_then(|n| n.checked_mul(element.size()))
            .ok_or_else(too_large)?;
        let memory = allocate(bytes).ok_or_else(|| DeviceError::OutOfMemory {
            bytes,
            element: element.name(),
            shape: shape.to_vec(),
        })?;
        Ok(Self {
            element,
            shape: shape.to_vec(),
            row_elements,
            bytes,
            memory,
        })
    }

    /// Element type.
    pub(crate) fn element(&self) -> ElementType {
        self.element
    }

    /// Shape, rows first.
    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Elements of one row.
    pub(crate) fn row_elements(&self) -> usize {
        self.row_elements
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The kind of memory, as ONNX Runtime describes it. ONNX Runtime must be loaded.
    pub(crate) fn place(&self) -> ort::Result<&MemoryInfo<'static>> {
        match &self.memory {
            Memory::Host(_) => host_memory(),
            #[cfg(feature = "cuda")]
            Memory::Cuda(memory) => Ok(memory.place()),
        }
    }

    /// Start of the memory, for binding. Operators may write through it, hence `&mut self`. Only host memory may be
    /// read or written through it by the host.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        match &self.memory {
            Memory::Host(memory) => memory.pointer.as_ptr(),
            #[cfg(feature = "cuda")]
            Memory::Cuda(memory) => memory.pointer.as_ptr(),
        }
    }

    /// The start of a tensor in host memory.
    fn host_start(&self) -> Option<NonNull<u8>> {
        match &self.memory {
            Memory::Host(memory) => Some(memory.pointer),
            #[cfg(feature = "cuda")]
            Memory::Cuda(_) => None,
        }
    }

    /// The floats of a float32 tensor in host memory.
    fn floats(&self) -> Option<NonNull<f32>> {
        let floats = self.element == ElementType::F32;
        self.host_start().filter(|_| floats).map(NonNull::cast)
    }

    /// The whole tensor as float32 values; `None` for another element type and for memory of another device.
    pub(crate) fn as_f32(&self) -> Option<&[f32]> {
        let pointer = self.floats()?.as_ptr().cast_const();
        // SAFETY: the memory holds `bytes / 4` initialised floats, is aligned to 64, lives as long as `self`,
        // and writers (operators, `as_f32_mut`) need `&mut self`.
        Some(unsafe { std::slice::from_raw_parts(pointer, self.bytes / 4) })
    }

    /// The whole tensor as float32 values to write; `None` as for [`Self::as_f32`].
    pub(crate) fn as_f32_mut(&mut self) -> Option<&mut [f32]> {
        let pointer = self.floats()?.as_ptr();
        // SAFETY: as in `as_f32`; `&mut self` makes the view exclusive.
        Some(unsafe { std::slice::from_raw_parts_mut(pointer, self.bytes / 4) })
    }

    /// The whole tensor as bytes; `None` for memory of another device.
    pub(crate) fn as_bytes(&self) -> Option<&[u8]> {
        let pointer = self.host_start()?.as_ptr().cast_const();
        // SAFETY: the memory holds `bytes` initialised bytes, lives as long as `self`, and writers need `&mut self`.
        Some(unsafe { std::slice::from_raw_parts(pointer, self.bytes) })
    }

    /// The whole tensor as bytes to write, any of which are a value of the element types there are; `None` as for
    /// [`Self::as_bytes`].
    pub(crate) fn as_bytes_mut(&mut self) -> Option<&mut [u8]> {
        let pointer = self.host_start()?.as_ptr();
        // SAFETY: as in `as_bytes`; `&mut self` makes the view exclusive.
        Some(unsafe { std::slice::from_raw_parts_mut(pointer, self.bytes) })
    }

    /// The bytes of one row; `None` for memory of another device and for a row outside.
    pub(crate) fn row_bytes(&self, row: usize) -> Option<&[u8]> {
        let range = self.row_range(row)?;
        self.as_bytes()?.get(range)
    }

    /// The bytes of one row to write; `None` as for [`Self::row_bytes`].
    pub(crate) fn row_bytes_mut(&mut self, row: usize) -> Option<&mut [u8]> {
        let range = self.row_range(row)?;
        self.as_bytes_mut()?.get_mut(range)
    }

    /// Copies a row over another; `None` for memory of another device and for rows outside.
    pub(crate) fn copy_row(&mut self, from: usize, to: usize) -> Option<()> {
        let (from, to) = (self.row_range(from)?, self.row_range(to)?);
        let all = self.as_bytes_mut()?;
        if from.end.max(to.end) > all.len() {
            return None;
        }
        all.copy_within(from, to.start);
        Some(())
    }

    /// Where the bytes of a row lie.
    pub(crate) fn row_range(&self, row: usize) -> Option<std::ops::Range<usize>> {
        let size = self.row_elements.checked_mul(self.element.size())?;
        let start = row.checked_mul(size)?;
        Some(start..start.checked_add(size)?)
    }

    /// One row of a float32 tensor.
    pub(crate) fn row_f32(&self, row: usize) -> Result<&[f32], DeviceError> {
        let start = row.saturating_mul(self.row_elements);
        self.as_f32()
            .and_then(|all| all.get(start..start.saturating_add(self.row_elements)))
            .ok_or_else(|| self.row_error(row, self.row_elements))
    }

    /// Overwrites one row of a float32 tensor.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn write_row_f32(&mut self, row: usize, values: &[f32]) -> Result<(), DeviceError> {
        let (len, start) = (self.row_elements, row.saturating_mul(self.row_elements));
        let target = if values.len() == len {
            self.as_f32_mut()
                .and_then(|all| all.get_mut(start..start.saturating_add(len)))
        } else {
            None
        };
        match target {
            Some(target) => {
                target.copy_from_slice(values);
                Ok(())
            }
            None => Err(self.row_error(row, values.len())),
        }
    }

    fn row_error(&self, row: usize, len: usize) -> DeviceError {
        DeviceError::Row {
            row,
            len,
            element: self.element.name(),
            shape: self.shape.clone(),
        }
    }
}

/// Owned, aligned, zeroed memory.
#[derive(Debug)]
struct HostMemory {
    pointer: NonNull<u8>,
    owner: Owner,
}

/// Who gives the memory back.
#[derive(Debug)]
enum Owner {
    /// The allocator.
    Heap(Layout),
    /// A mapping of no file: page-aligned, and the system makes a page when it is first written.
    Pages { _map: MmapMut },
}

// SAFETY: the allocation is owned and has no thread affinity; shared access is read-only by `Buffer`'s methods.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// One cache line: what vector loads and ONNX Runtime's kernels want.
    const ALIGNMENT: usize = 64;
    /// Bytes from which memory is mapped. The allocator clears what it aligns, so that a cache that is mostly never
    /// used would take its whole size at once.
    const MAPPED: usize = 1 << 20;

    fn zeroed(bytes: usize) -> Option<Self> {
        if bytes >= Self::MAPPED {
            let mut map = MmapMut::map_anon(bytes).ok()?;
            return Some(Self {
                pointer: NonNull::new(map.as_mut_ptr())?,
                owner: Owner::Pages { _map: map },
            });
        }
        let layout = Layout::from_size_align(bytes.max(1), Self::ALIGNMENT).ok()?;
        // SAFETY: the layout has a non-zero size.
        let pointer = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self {
            pointer,
            owner: Owner::Heap(layout),
        })
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        if let Owner::Heap(layout) = self.owner {
            // SAFETY: allocated in `zeroed` with this layout, freed once.
            unsafe { dealloc(self.pointer.as_ptr(), layout) };
        }
    }
}
