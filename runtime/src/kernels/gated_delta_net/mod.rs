//! `pawl::GatedDeltaNet`: linear attention with a gated delta rule over a bank of states.

mod chunked;
mod kernel;
mod layout;
mod operator;
mod prepare;
mod recurrent;
#[cfg(test)]
mod reference;
mod replay;
#[cfg(test)]
mod tests;

pub(crate) use layout::{Decay, Heads};
pub(super) use operator::GatedDeltaNet;
pub(crate) use replay::replay as replay_delta;
