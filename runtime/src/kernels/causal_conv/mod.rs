//! `pawl::CausalConv`: depthwise causal convolution over a bank of states.

mod kernel;
mod operator;

pub(crate) use kernel::replay as replay_conv;
pub(super) use operator::CausalConv;
