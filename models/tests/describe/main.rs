//! `describe` on real and made-up checkpoints.
#![expect(
    clippy::indexing_slicing,
    reason = "a test that reads past an end fails, as it should"
)]

mod fixture;
mod synthetic;
mod walk;

mod architectures;
mod generations;
mod properties;
mod refusals;
mod rope;
mod tensors;
mod tokens;
