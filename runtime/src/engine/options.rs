//! How an engine schedules.

use std::num::NonZeroUsize;

/// How an engine schedules its steps. Defaults come from the model's `engine.dynamic_batching` section.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineOptions {
    /// Tokens of one step, over all requests; `None` takes the model's `max_scheduled_tokens`.
    pub max_scheduled_tokens: Option<NonZeroUsize>,
    /// Tokens of one request's prompt per step. Smaller chunks let running requests answer more evenly.
    pub prefill_chunk: NonZeroUsize,
    /// Requests that may wait for admission; more are refused.
    pub max_queued: usize,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            max_scheduled_tokens: None,
            prefill_chunk: Self::PREFILL_CHUNK,
            max_queued: 1024,
        }
    }
}

impl EngineOptions {
    const PREFILL_CHUNK: NonZeroUsize = NonZeroUsize::new(512).expect("512 is not zero");

    /// Limits the tokens of one step, over all requests; 0 keeps the model's limit.
    #[must_use]
    pub fn max_scheduled_tokens(mut self, tokens: usize) -> Self {
        self.max_scheduled_tokens = NonZeroUsize::new(tokens);
        self
    }

    /// Limits the tokens of one request's prompt per step; 0 keeps the default.
    #[must_use]
    pub fn prefill_chunk(mut self, tokens: usize) -> Self {
        self.prefill_chunk = NonZeroUsize::new(tokens).unwrap_or(Self::PREFILL_CHUNK);
        self
    }

    /// Limits the requests that may wait for admission.
    #[must_use]
    pub fn max_queued(mut self, requests: usize) -> Self {
        self.max_queued = requests;
        self
    }
}
