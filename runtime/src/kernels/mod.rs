//! Pawl's operators for ONNX Runtime's CPU provider.
//!
//! Each operator is a kernel over slices and bank pointers (`kernel.rs`), tried without ONNX Runtime,
//! and a thin wrapper (`operator.rs`) that checks every input before the kernel touches memory.

mod batch;
#[cfg(test)]
mod canary;
mod causal_conv;
mod error;
mod gated_delta_net;
mod gemm;
mod isa;
mod math;
mod memory;
mod node;
mod paged_attention;
mod parallel;
mod scratch;
mod tensor;
#[cfg(test)]
mod testing;

pub(crate) use causal_conv::replay_conv;
pub(crate) use gated_delta_net::{Decay, Heads, replay_delta};
pub(crate) use parallel::{Parallel, Scoped};

/// The domain `pawl`, version 1, with all its operators.
///
/// # Errors
/// When ONNX Runtime refuses to register one.
pub(crate) fn domain() -> ort::Result<ort::operator::OperatorDomain> {
    ort::operator::OperatorDomain::new("pawl")?
        .add(paged_attention::PagedAttention)?
        .add(causal_conv::CausalConv)?
        .add(gated_delta_net::GatedDeltaNet)
}
