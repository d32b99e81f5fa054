//! Emitters of Pawl's own CPU operators, domain `pawl`.

mod causal_conv;
mod checkpoints;
mod gated_delta_net;
mod paged_attention;

pub(crate) use causal_conv::causal_conv;
pub(crate) use gated_delta_net::gated_delta_net;
pub(crate) use paged_attention::paged_attention;

/// Domain of the operators.
pub(crate) const DOMAIN: &str = "pawl";
