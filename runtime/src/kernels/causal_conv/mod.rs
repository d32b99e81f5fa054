//! `pawl::CausalConv`: depthwise causal convolution over a bank of states.

mod kernel;
mod operator;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

pub(crate) use kernel::replay as replay_conv;
pub(super) use operator::CausalConv;
