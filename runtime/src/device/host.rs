//! Host memory, the device of the CPU provider.

use super::{Buffer, Device, DeviceError, ElementType};
use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use std::sync::OnceLock;

/// Host memory, as ONNX Runtime describes it. ONNX Runtime must be loaded.
pub(crate) fn host_memory() -> ort::Result<&'static MemoryInfo<'static>> {
    static HOST: OnceLock<MemoryInfo<'static>> = OnceLock::new();
    if let Some(found) = HOST.get() {
        return Ok(found);
    }
    let made = MemoryInfo::new(
        AllocationDevice::CPU,
        0,
        AllocatorType::Device,
        MemoryType::Default,
    )?;
    Ok(HOST.get_or_init(|| made))
}

/// The host: memory comes from the global allocator, 64-byte aligned.
#[derive(Debug, Default)]
pub(crate) struct HostDevice;

impl Device for HostDevice {
    fn name(&self) -> &'static str {
        "CPU"
    }

    fn allocate(&self, element: ElementType, shape: &[usize]) -> Result<Buffer, DeviceError> {
        Buffer::host(element, shape)
    }

    fn host_visible(&self) -> bool {
        true
    }
}
