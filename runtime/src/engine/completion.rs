//! What a request comes to.

use super::error::EngineError;
use super::kept::Kept;
use super::stats::RequestStats;
use crate::request::{FinishReason, RequestError, SubmitError, Usage};

/// A finished request.
///
/// ```no_run
/// # use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
/// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
/// # let engine = Engine::new(model, &EngineOptions::default())?;
/// let answer = engine.generate(Request::from_text("import os").max_new_tokens(8))?;
/// let usage = answer.usage;
/// println!("{} tokens after {}: {}", usage.generated_tokens, usage.prompt_tokens, answer.text);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Completion {
    /// Tokens generated, an end token included.
    pub tokens: Vec<u32>,
    /// Their text; empty for a model without a tokenizer.
    pub text: String,
    /// Why it ended.
    pub reason: FinishReason,
    /// The stop string that ended it.
    pub stop: Option<String>,
    /// What it used.
    pub usage: Usage,
    /// Where its time went.
    pub stats: RequestStats,
    /// Its state, if it was asked to keep it.
    pub kept: Option<Kept>,
    /// The seed it sampled with.
    pub seed: u64,
}

/// Why a request gave no completion.
///
/// ```
/// let error = pawl::GenerateError::from(pawl::SubmitError::QueueFull);
/// assert_eq!(error.to_string(), "too many requests are waiting");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// It was refused.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// It failed while it ran.
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl GenerateError {
    /// The kind of error.
    ///
    /// ```
    /// use pawl::{ErrorCode, GenerateError, SubmitError};
    ///
    /// assert_eq!(GenerateError::from(SubmitError::QueueFull).code(), ErrorCode::QueueFull);
    /// ```
    #[must_use]
    pub fn code(&self) -> crate::error::ErrorCode {
        match self {
            Self::Submit(error) => error.code(),
            Self::Request(error) => error.code(),
        }
    }
}

impl From<&EngineError> for RequestError {
    fn from(error: &EngineError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}
