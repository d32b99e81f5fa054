//! What was asked of speculation and cannot be had.

use super::mode::Speculation;

/// What was asked for and cannot be had. Nothing falls back silently.
///
/// ```
/// let error = pawl::SpeculationError::MaxDrafts { wanted: 9, most: 7 };
/// assert_eq!(error.to_string(), "max_drafts is 9, this model takes 1 to 7");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpeculationError {
    /// `mtp` for a model without a head.
    #[error("speculation mtp: the model has no drafting head; use ngram or off")]
    NoHead,
    /// Drafts for a model whose fixed state cannot be rolled back.
    #[error(
        "speculation {mode}: the model was exported without checkpoints, so drafts cannot be undone; \
         export it with --checkpoints update:8, or use off"
    )]
    NoCheckpoints {
        /// What was asked for.
        mode: Speculation,
    },
    /// More drafts than can be captured, or none at all.
    #[error("max_drafts is {wanted}, this model takes 1 to {most}")]
    MaxDrafts {
        /// What was asked for.
        wanted: usize,
        /// What the model captures.
        most: usize,
    },
    /// A number of drafts, or of drafts of a tree, for a mode that makes none.
    #[error(
        "{option} is {value}, but {by} is {mode}, which drafts {}; choose another mode, or leave {option} out",
        if *.mode == Speculation::Off { "nothing" } else { "no trees" }
    )]
    Unused {
        /// The option: `max_drafts` or `tree_nodes`.
        option: &'static str,
        /// Its value.
        value: usize,
        /// What chose the mode: `speculation` for the option, the name of the environment variable, or the default.
        by: &'static str,
        /// The mode.
        mode: Speculation,
    },
    /// Trees of too many drafts, or none.
    #[error("tree_nodes is {wanted}, expected 1 to {most}")]
    TreeNodes {
        /// What was asked for.
        wanted: usize,
        /// The most.
        most: usize,
    },
}
