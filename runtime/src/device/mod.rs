//! Memory that operators read and write: where it lives and who owns it.
//!
//! A [`Buffer`] is one tensor of persistent state (a bank, a block pool, a checkpoint series). It is allocated
//! once, when the engine starts, and bound to ONNX Runtime as input and output of every step.

mod buffer;
#[cfg(feature = "cuda")]
mod cuda;
mod host;

pub(crate) use buffer::{Buffer, DeviceError, ElementType};
#[cfg(feature = "cuda")]
pub(crate) use cuda::{CudaDevice, cuda_provider};
pub(crate) use host::{HostDevice, host_memory};

/// Memory that the host says it cannot touch, so that what happens elsewhere is tested here.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct Distant;

#[cfg(test)]
impl Device for Distant {
    fn name(&self) -> &'static str {
        "a distant device"
    }

    fn allocate(&self, element: ElementType, shape: &[usize]) -> Result<Buffer, DeviceError> {
        Buffer::host(element, shape)
    }

    fn host_visible(&self) -> bool {
        false
    }
}

/// A place that can hold state.
pub(crate) trait Device: Send + Sync + std::fmt::Debug {
    /// The name of the ONNX Runtime provider whose operators run here, for messages.
    fn name(&self) -> &'static str;

    /// Allocates a zeroed tensor. The leading axis counts rows (bank rows, blocks, slots).
    fn allocate(&self, element: ElementType, shape: &[usize]) -> Result<Buffer, DeviceError>;

    /// Whether the host may read and write the memory directly.
    fn host_visible(&self) -> bool;
}
