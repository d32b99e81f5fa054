//! Emitters of ONNX Runtime's own stateful operators, domain `com.microsoft`.

mod gated_delta_net;
mod paged_attention;
mod update;
mod varlen_causal_conv;

pub(crate) use gated_delta_net::gated_delta_net;
pub(crate) use paged_attention::paged_attention;
pub(crate) use varlen_causal_conv::varlen_causal_conv;

/// Domain of the operators.
pub(crate) const DOMAIN: &str = "com.microsoft";
