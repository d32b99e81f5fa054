//! NVIDIA GPUs, through ONNX Runtime's CUDA provider.
//!
//! Memory comes from the allocator of a session that runs on the GPU, so it is counted and freed with that session's.

#![allow(unsafe_code)]

use super::{Buffer, Device, DeviceError, ElementType};
use ort::ep::{self, ExecutionProviderDispatch};
use ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ort::value::{Shape, TensorRef, TensorRefMut};
use ort::{AsPointer, ortsys};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// The provider, to be registered with a session. Registering fails where ONNX Runtime does not have it, or where the
/// driver or the device is missing; it is never left out silently.
pub(crate) fn cuda_provider(device_id: u32) -> ort::Result<ExecutionProviderDispatch> {
    // Products in float32 are those of states that are committed: with fewer bits they would not be where running the
    // kept tokens one by one leaves them.
    let provider = ep::CUDA::default()
        .with_device_id(number(device_id)?)
        .with_tf32(false);
    Ok(provider.build().error_on_failure())
}

/// One GPU.
#[derive(Debug)]
pub(crate) struct CudaDevice {
    shared: Arc<Shared>,
}

/// What every allocation needs until it is freed.
#[derive(Debug)]
struct Shared {
    /// Only one thread at a time may use the allocator of this provider.
    allocator: Mutex<Allocator>,
    place: MemoryInfo<'static>,
    environment: ort::environment::Environment,
}

impl CudaDevice {
    /// The device that `session` runs on.
    pub(crate) fn new(
        session: &ort::session::Session,
        environment: &ort::environment::Environment,
        device_id: u32,
    ) -> ort::Result<Self> {
        let place = MemoryInfo::new(
            AllocationDevice::CUDA,
            number(device_id)?,
            AllocatorType::Device,
            MemoryType::Default,
        )?;
        let allocator = Allocator::new(session, place.to_owned())?;
        Ok(Self {
            shared: Arc::new(Shared {
                allocator: Mutex::new(allocator),
                place,
                environment: environment.clone(),
            }),
        })
    }
}

impl Device for CudaDevice {
    fn name(&self) -> &'static str {
        "CUDA"
    }

    fn allocate(&self, element: ElementType, shape: &[usize]) -> Result<Buffer, DeviceError> {
        Buffer::cuda(element, shape, |bytes| {
            CudaMemory::zeroed(&self.shared, bytes).ok()
        })
    }

    fn host_visible(&self) -> bool {
        false
    }
}

/// An owned, zeroed allocation on a GPU.
#[derive(Debug)]
pub(crate) struct CudaMemory {
    pub(super) pointer: NonNull<u8>,
    shared: Arc<Shared>,
}

// SAFETY: the allocation is owned and has no thread affinity; the allocator behind it is locked when used.
unsafe impl Send for CudaMemory {}
// SAFETY: as above; the host cannot read or write through the pointer.
unsafe impl Sync for CudaMemory {}

/// Bytes of zeros that are copied at once.
const CHUNK: usize = 64 << 20;

impl CudaMemory {
    fn zeroed(shared: &Arc<Shared>, bytes: usize) -> ort::Result<Self> {
        let pointer = {
            let allocator = shared
                .allocator
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            allocator.alloc::<u8>(bytes.max(1))?.into_raw()
        };
        let pointer = NonNull::new(pointer.cast::<u8>());
        let memory = Self {
            pointer: pointer.ok_or_else(|| ort::Error::new("no memory was allocated"))?,
            shared: Arc::clone(shared),
        };
        memory.fill_zero(bytes)?;
        Ok(memory)
    }

    /// The kind of memory, as ONNX Runtime describes it.
    pub(super) fn place(&self) -> &MemoryInfo<'static> {
        &self.shared.place
    }

    fn fill_zero(&self, bytes: usize) -> ort::Result<()> {
        let zeros = vec![0i8; bytes.min(CHUNK)];
        for start in (0..bytes).step_by(CHUNK) {
            let length = CHUNK.min(bytes - start);
            self.upload(start, zeros.get(..length).unwrap_or_default())?;
        }
        Ok(())
    }

    fn upload(&self, start: usize, values: &[i8]) -> ort::Result<()> {
        let source = TensorRef::from_array_view(([values.len()], values))?;
        let extent = i64::try_from(values.len()).map_err(ort::Error::wrap)?;
        // SAFETY: the caller stays within the allocation.
        let target = unsafe { self.pointer.as_ptr().add(start) }.cast::<c_void>();
        let (place, shape) = (self.shared.place.to_owned(), Shape::new([extent]));
        // SAFETY: `target` points to `extent` bytes of this allocation, which outlives the value.
        let target = unsafe { TensorRefMut::<i8>::from_raw(place, target, shape) }?;
        let environment = self.shared.environment.ptr().cast_mut();
        let (from, mut to) = (source.ptr(), target.ptr());
        ortsys![unsafe CopyTensors(environment, &from, &mut to, std::ptr::null_mut(), 1)?];
        Ok(())
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        let allocator = self
            .shared
            .allocator
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // SAFETY: allocated by this allocator in `zeroed`, freed once.
        unsafe { allocator.free(self.pointer.as_ptr()) };
    }
}

fn number(device_id: u32) -> ort::Result<i32> {
    i32::try_from(device_id).map_err(ort::Error::wrap)
}
