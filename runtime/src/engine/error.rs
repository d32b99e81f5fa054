//! What can go wrong between a loaded model and its tokens.

use crate::error::{ErrorCode, RunError};

/// Why a step, an evaluation or an engine could not go on. Committed state is as it was before the failed step.
///
/// ```
/// let error = pawl::EngineError::Input { sequence: 2, reason: "it is empty".to_owned() };
/// assert_eq!(error.to_string(), "sequence 2: it is empty");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// State could not be allocated, or a configured size is out of range.
    #[error("cannot allocate the pools of state: {reason}")]
    Pools {
        /// What was asked for, and why it cannot be had.
        reason: String,
    },
    /// Tokens that the model cannot run.
    #[error("sequence {sequence}: {reason}")]
    Input {
        /// Index of the sequence.
        sequence: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// A graph could not be run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The step could not be reserved or committed; it was discarded.
    #[error("the step was discarded: {reason}")]
    Discarded {
        /// Which participant refused, and why.
        reason: String,
    },
    /// An audit found state that contradicts itself: a defect of Pawl, or damaged memory. Nothing that the engine keeps
    /// can be trusted, so it stops.
    #[error("the state contradicts itself: {broken}")]
    Invariant {
        /// Which invariants do not hold, and what was found.
        broken: String,
    },
    /// The engine's thread has ended; it takes no more requests.
    #[error("the engine has stopped: {reason}")]
    Stopped {
        /// Why.
        reason: String,
    },
}

impl EngineError {
    /// The kind of error.
    ///
    /// ```
    /// use pawl::{EngineError, ErrorCode};
    ///
    /// let error = EngineError::Stopped { reason: "it was asked to".to_owned() };
    /// assert_eq!(error.code(), ErrorCode::EngineStopped);
    /// ```
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Pools { .. } => ErrorCode::OutOfMemory,
            Self::Input { .. } => ErrorCode::RequestInvalid,
            Self::Run(error) => error.code(),
            Self::Discarded { .. } => ErrorCode::StepDiscarded,
            Self::Invariant { .. } => ErrorCode::StateContradictory,
            Self::Stopped { .. } => ErrorCode::EngineStopped,
        }
    }

    pub(crate) fn discarded(error: &dyn std::fmt::Display) -> Self {
        Self::Discarded {
            reason: error.to_string(),
        }
    }

    pub(crate) fn pools(error: &dyn std::fmt::Display) -> Self {
        Self::Pools {
            reason: error.to_string(),
        }
    }
}
