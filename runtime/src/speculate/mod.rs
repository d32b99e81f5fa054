//! Drafts: where they come from, how many, and which of them are kept.
//!
//! A draft is a guess at the tokens that follow. The decoder runs known tokens and drafts in one row; at every position
//! the request's own sampler then draws the token it would have drawn anyway, and drafts are kept as far as they equal
//! it (*sample-and-match*). Draws are a pure function of logits, seed and position, so the text is the same with drafts
//! and without: drafts decide only how many positions one step computes.

#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the engine drafts a fixed number")
)]
pub(crate) mod control;
pub(crate) mod growth;
mod mode;
mod ngram;
#[cfg_attr(not(test), expect(dead_code, reason = "the engine runs one row"))]
pub(crate) mod rows;
#[cfg_attr(not(test), expect(dead_code, reason = "the engine looks n-grams up"))]
pub(crate) mod shared;
mod stats;
#[cfg_attr(not(test), expect(dead_code, reason = "the engine looks n-grams up"))]
pub(crate) mod suffix;
#[cfg_attr(not(test), expect(dead_code, reason = "no source drafts trees"))]
mod tree;
mod verify;

pub use mode::{DraftSource, EffectiveSpeculation, Speculation, SpeculationError};
pub(crate) use mode::{Drafts, Offer};
pub(crate) use ngram::propose as propose_ngram;
pub use stats::SpeculationStats;
pub use tree::{DraftTree, DraftTreeError};
pub(crate) use verify::verify;
