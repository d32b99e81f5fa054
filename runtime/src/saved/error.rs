//! Why a state could not be saved or restored.

use crate::engine::KeptError;
use crate::error::ErrorCode;
use std::path::{Path, PathBuf};

/// A state that could not be saved to a file or restored from one. A file that was there before is as it was.
///
/// ```no_run
/// # use pawl::{Engine, Kept, StateFileError};
/// # fn resume(engine: &Engine) -> Result<Option<Kept>, StateFileError> {
/// match engine.restore("prefix.state") {
///     Ok(kept) => Ok(Some(kept)),
///     // Of a model that was exported anew, say: compute it again.
///     Err(StateFileError::OtherModel { .. }) => Ok(None),
///     Err(error) => Err(error),
/// }
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateFileError {
    /// The file cannot be read or written.
    #[error("`{path}`: {source}")]
    #[non_exhaustive]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The file is something else.
    #[error("`{path}`: not a saved state: metadata {key} is {found}, expected {expected}")]
    #[non_exhaustive]
    NotAState {
        /// The file.
        path: PathBuf,
        /// Which entry of the metadata.
        key: &'static str,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// The file is cut off, changed, or no safetensors file at all.
    #[error("`{path}`: damaged, or not a saved state: {reason}")]
    #[non_exhaustive]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Another version of the format.
    #[error("`{path}`: version is {found}, expected {expected}")]
    #[non_exhaustive]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: String,
        /// The version that is read.
        expected: &'static str,
    },
    /// The state is of another model.
    #[error("`{path}`: the state of another model: {key} is {found}, expected {expected}")]
    #[non_exhaustive]
    OtherModel {
        /// The file.
        path: PathBuf,
        /// What differs: the fingerprint, or a tensor that this model does not keep in this shape.
        key: String,
        /// What this model has.
        expected: String,
        /// What the file has.
        found: String,
    },
    /// The state was saved without the draft head's cache, and this engine drafts with the head.
    #[error(
        "`{path}`: saved without the cache of the draft head, which this engine drafts with; \
         use speculation ngram or off"
    )]
    #[non_exhaustive]
    NoHead {
        /// The file.
        path: PathBuf,
    },
    /// The state itself is gone, or there is no room for it.
    #[error(transparent)]
    State(#[from] KeptError),
}

impl StateFileError {
    /// The kind of error.
    ///
    /// ```
    /// use pawl::{ErrorCode, KeptError, StateFileError};
    ///
    /// assert_eq!(StateFileError::from(KeptError::Gone).code(), ErrorCode::StateGone);
    /// ```
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::File { .. } => ErrorCode::FileUnreadable,
            Self::Damaged { .. } => ErrorCode::StateDamaged,
            Self::NotAState { .. }
            | Self::Version { .. }
            | Self::OtherModel { .. }
            | Self::NoHead { .. } => ErrorCode::StateForeign,
            Self::State(error) => error.code(),
        }
    }

    pub(super) fn file(path: &Path, source: impl Into<std::io::Error>) -> Self {
        Self::File {
            path: path.to_path_buf(),
            source: source.into(),
        }
    }

    pub(super) fn damaged(path: &Path, reason: impl ToString) -> Self {
        Self::Damaged {
            path: path.to_path_buf(),
            reason: reason.to_string(),
        }
    }

    pub(super) fn other_model(
        path: &Path,
        key: impl ToString,
        expected: impl ToString,
        found: impl ToString,
    ) -> Self {
        Self::OtherModel {
            path: path.to_path_buf(),
            key: key.to_string(),
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }
}
