//! Why a running request could not go on.

use crate::error::ErrorCode;

/// A request that the engine gave up. Its neighbours and the engine go on.
///
/// ```no_run
/// fn show(error: &pawl::RequestError) {
///     eprintln!("error {}: {}", error.code.number(), error.message);
/// }
/// # let _ = show;
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct RequestError {
    /// The kind of error.
    pub code: ErrorCode,
    /// What happened.
    pub message: String,
}

impl RequestError {
    pub(crate) fn new(code: ErrorCode, message: String) -> Self {
        Self { code, message }
    }

    /// The kind of error.
    ///
    /// ```no_run
    /// fn can_be_tried_again(error: &pawl::RequestError) -> bool {
    ///     error.code() == pawl::ErrorCode::StepFailed
    /// }
    /// # let _ = can_be_tried_again;
    /// ```
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// The prompt is longer than the whole cache.
    pub(crate) fn does_not_fit(tokens: usize, most: usize) -> Self {
        let message = format!("the prompt has {tokens} tokens, the cache holds {most}");
        Self::new(ErrorCode::RequestInvalid, message)
    }

    /// No token can be drawn from the logits.
    pub(crate) fn sampling(error: &dyn std::fmt::Display) -> Self {
        Self::new(
            ErrorCode::StepFailed,
            format!("cannot draw a token: {error}"),
        )
    }

    /// The grammar cannot be followed.
    pub(crate) fn grammar(error: &dyn std::fmt::Display) -> Self {
        Self::new(
            ErrorCode::StepFailed,
            format!("cannot follow the grammar: {error}"),
        )
    }

    /// A token cannot be turned into text.
    pub(crate) fn text(error: &dyn std::fmt::Display) -> Self {
        Self::new(
            ErrorCode::StepFailed,
            format!("cannot decode a token: {error}"),
        )
    }

    /// The engine's thread ended first.
    pub(crate) fn stopped() -> Self {
        Self::new(
            ErrorCode::EngineStopped,
            "the engine stopped before the request ended".to_owned(),
        )
    }
}
