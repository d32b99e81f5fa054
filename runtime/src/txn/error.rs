//! What can go wrong in a step's transaction.

use super::participant::ParticipantError;
use crate::ids::RequestId;
use crate::kv::KvError;
use crate::state::StateError;

/// Why a step could not be reserved, decided or committed. Whatever the error, nothing visible has changed and the
/// composite stays usable, except after [`StepError::Torn`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum StepError {
    /// A step without rows, or a row without tokens.
    #[error("a step needs rows and every row needs tokens")]
    Empty,
    /// As many requests are resident as the engine was planned for: try the admission later.
    #[error("{needed} new requests, {free} places are free")]
    Full {
        /// Admissions asked for.
        needed: usize,
        /// Residents that still fit.
        free: usize,
    },
    /// The row says resident and the request is not, or the other way round.
    #[error("{request} is {}resident, its row says otherwise", if *.resident { "" } else { "not " })]
    Residency {
        /// Whose row.
        request: RequestId,
        /// What the composite knows.
        resident: bool,
    },
    /// More drafts than tokens, or drafts for the head without a head.
    #[error("{request}: {drafts} drafts in a row of {tokens} tokens")]
    Drafts {
        /// Whose row.
        request: RequestId,
        /// Drafts asked for.
        drafts: usize,
        /// Tokens of the row, drafts included.
        tokens: usize,
    },
    /// A branch that drafts nothing.
    #[error("{request}: a branch of {tokens} tokens, {known} of them are known")]
    Branch {
        /// Whose row.
        request: RequestId,
        /// Tokens of the branch.
        tokens: usize,
        /// Tokens of the row that are no drafts.
        known: usize,
    },
    /// A decision for a row that the request does not have.
    #[error("{request}: candidate {candidate} of {candidates} is kept")]
    Candidate {
        /// Whose row.
        request: RequestId,
        /// Candidate to be kept: 0 is the request's own row.
        candidate: usize,
        /// Candidates there are.
        candidates: usize,
    },
    /// Positions of a draft head were asked for, and the model has none.
    #[error("{0}: the model has no draft head")]
    NoHead(RequestId),
    /// One decision per row is needed.
    #[error("{decisions} decisions for {rows} rows")]
    Decisions {
        /// Decisions given.
        decisions: usize,
        /// Rows of the step.
        rows: usize,
    },
    /// A decision that keeps more than was run, or drops tokens that were no drafts.
    #[error("{request}: {kept} of {tokens} tokens kept, at least {least} must be")]
    Kept {
        /// Whose row.
        request: RequestId,
        /// Tokens kept.
        kept: usize,
        /// Tokens run.
        tokens: usize,
        /// Tokens that were no drafts.
        least: usize,
    },
    /// A length that cannot be had of a resident: more than it has committed, or fewer where fixed state cannot go back.
    #[error("{request}: a state of {tokens} tokens, {committed} are committed")]
    Position {
        /// Whose state.
        request: RequestId,
        /// Tokens asked for.
        tokens: usize,
        /// Tokens committed.
        committed: usize,
    },
    /// The request is not resident.
    #[error("{0} is not resident")]
    Unknown(RequestId),
    /// Fixed state refused.
    #[error("fixed state: {0}")]
    State(#[from] StateError),
    /// The paged cache refused.
    #[error("paged cache: {0}")]
    Kv(#[from] KvError),
    /// The draft head's cache refused.
    #[error("paged cache of the draft head: {0}")]
    Head(KvError),
    /// A participant found its change outdated.
    #[error("{participant} cannot be committed: {source}")]
    Validate {
        /// Name of the participant.
        participant: &'static str,
        /// Its reason.
        source: ParticipantError,
    },
    /// A participant could not do its fallible work.
    #[error("{participant} cannot be prepared: {source}")]
    Prepare {
        /// Name of the participant.
        participant: &'static str,
        /// Its reason.
        source: ParticipantError,
    },
    /// A participant broke off while a step was published: its state no longer agrees with the others'.
    #[error("an earlier step was published in part; the engine must be restarted")]
    Torn,
    /// A call that a test let fail.
    #[cfg(test)]
    #[error("{0} failed on purpose")]
    Fault(&'static str),
}

impl StepError {
    /// Whether the same step can succeed after other requests have left.
    pub(crate) fn can_wait(&self) -> bool {
        matches!(
            self,
            Self::Full { .. }
                | Self::State(StateError::NoFreeSlot { .. })
                | Self::Kv(KvError::OutOfBlocks { .. })
                | Self::Head(KvError::OutOfBlocks { .. })
        )
    }
}
