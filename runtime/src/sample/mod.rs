//! From a row of logits to a token: filters, position-keyed noise, and how close the decision was.
//!
//! A draw is a pure function of (logits, parameters, seed, absolute position). It does not depend
//! on what was drawn before, on the batch, or on how many tokens a step verified, so a request gives
//! the same tokens whether they come one at a time or several per step.

mod best;
mod cut;
mod draw;
mod filter;
mod params;
mod philox;
mod race;
mod scan;
#[cfg(test)]
mod tests;

pub(crate) use draw::{Drawn, Sampler, Scratch};
pub use params::{SamplingError, SamplingParams};
