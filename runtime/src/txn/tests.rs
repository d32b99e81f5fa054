//! The composite transaction against a naive model, and every way out of a step.
//!
//! The scripts are fuzzed too: what they use is compiled for tests and with the feature `fuzzing`.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a script stops where the pools and the model disagree"
)]

#[cfg(test)]
mod audit;
pub(crate) mod fixture;
#[cfg(test)]
mod guests;
#[cfg(test)]
mod ngram;
#[cfg(test)]
mod phases;
mod scripts;
#[cfg(test)]
mod trees;

pub(crate) use scripts::play;
