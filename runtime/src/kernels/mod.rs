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
mod owed;
mod paged_attention;
mod parallel;
mod scratch;
mod tensor;
#[cfg(test)]
mod testing;

pub(crate) use gated_delta_net::{Decay, Heads};
pub(crate) use owed::{Collected, Ledger, OwedState, Recipe, Replay};

use ort::operator::OperatorDomain;
use std::sync::Arc;

/// Pawl's operators for one session.
pub(crate) struct Operators {
    /// The domain `pawl`, version 1.
    pub(crate) domain: OperatorDomain,
    /// What those that keep state are to make before they read it.
    pub(crate) ledger: Arc<Ledger>,
}

impl Operators {
    /// All of them.
    ///
    /// # Errors
    /// When ONNX Runtime refuses to register one.
    pub(crate) fn new() -> ort::Result<Self> {
        let ledger = Arc::new(Ledger::default());
        let domain = OperatorDomain::new("pawl")?
            .add(paged_attention::PagedAttention)?
            .add(causal_conv::CausalConv(Arc::clone(&ledger)))?
            .add(gated_delta_net::GatedDeltaNet(Arc::clone(&ledger)))?;
        Ok(Self { domain, ledger })
    }
}
