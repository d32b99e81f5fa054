//! Host memory, the device of the CPU provider.

use super::{Buffer, Device, DeviceError, ElementType};

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
