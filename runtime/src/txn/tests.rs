//! The composite transaction against a naive model, and every way out of a step.

mod audit;
pub(crate) mod fixture;
mod guests;
mod ngram;
mod phases;
mod scripts;
mod trees;
