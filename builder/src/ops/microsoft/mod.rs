//! Emitters of ONNX Runtime's own operators, domain `com.microsoft`.

mod gated_delta_net;
mod matmul_nbits;
mod paged_attention;
mod update;
mod varlen_causal_conv;

pub(crate) use gated_delta_net::gated_delta_net;
pub(crate) use matmul_nbits::matmul_nbits;
pub(crate) use paged_attention::paged_attention;
pub(crate) use varlen_causal_conv::varlen_causal_conv;

/// Domain of the operators.
pub(crate) const DOMAIN: &str = "com.microsoft";
