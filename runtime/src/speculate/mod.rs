//! Drafts: where they come from, how many, and which of them are kept.
//!
//! A draft is a guess at the tokens that follow. The decoder runs known tokens and drafts in one row; at every position
//! the request's own sampler then draws the token it would have drawn anyway, and drafts are kept as far as they equal
//! it (*sample-and-match*). Draws are a pure function of logits, seed and position, so the text is the same with drafts
//! and without: drafts decide only how many positions one step computes.

mod choice;
pub(crate) mod control;
mod departure;
mod drafts;
mod error;
mod growth;
mod mode;
mod rows;
mod shared;
mod source;
mod stats;
mod suffix;
mod tree;
mod verify;
mod wanted;

pub(crate) use choice::Choice;
pub(crate) use departure::Departure;
pub(crate) use drafts::Drafts;
pub use error::SpeculationError;
pub(crate) use growth::{Growth, TreeLimits};
pub(crate) use mode::Offer;
pub use mode::{DraftPolicy, DraftSource, EffectiveSpeculation, Speculation};
pub(crate) use rows::Rows;
pub(crate) use shared::SharedTexts;
pub(crate) use source::Proposal;
pub use source::Source;
pub use stats::{Fallback, Policy, SourceStats, SpeculationStats};
pub(crate) use stats::{Round, Spent};
pub(crate) use suffix::{LONGEST, Suffixes};
pub use tree::{DraftTree, DraftTreeError};
pub(crate) use verify::verify_tree;
pub(crate) use wanted::Wanted;
