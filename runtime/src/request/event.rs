//! What a request reports.

use super::failure::RequestError;
use crate::engine::{Kept, RequestStats};

/// Why a request ended.
///
/// ```
/// assert_eq!(pawl::FinishReason::Eos.to_string(), "eos");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FinishReason {
    /// The model wrote an end token. The token counts as generated and has no text.
    Eos,
    /// The text is complete: its [`Grammar`](crate::Grammar) lets nothing follow.
    Grammar,
    /// The text reached a stop string. The text ends before it; its tokens count as generated.
    StopString,
    /// The request's `max_new_tokens` are generated.
    MaxNewTokens,
    /// Prompt and generated tokens fill the model's context.
    ContextLength,
    /// The caller cancelled it.
    Cancelled,
    /// The engine could not go on with it.
    Failed,
}

impl FinishReason {
    /// The name used in JSON output.
    ///
    /// ```
    /// assert_eq!(pawl::FinishReason::MaxNewTokens.as_str(), "max_new_tokens");
    /// ```
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            FinishReason::Eos => "eos",
            FinishReason::Grammar => "grammar",
            FinishReason::StopString => "stop_string",
            FinishReason::MaxNewTokens => "max_new_tokens",
            FinishReason::ContextLength => "context_length",
            FinishReason::Cancelled => "cancelled",
            FinishReason::Failed => "failed",
        }
    }
}

impl std::fmt::Display for FinishReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Tokens of a request.
///
/// ```
/// let usage = pawl::Usage::default();
/// assert_eq!((usage.prompt_tokens, usage.reuse), (0, pawl::Reuse::NotAsked));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Tokens of the prompt, reused ones included.
    pub prompt_tokens: u64,
    /// Tokens of the prompt whose state was taken over from an earlier request instead of computed.
    pub reused_tokens: u64,
    /// What became of the state that the request was to continue.
    pub reuse: Reuse,
    /// Tokens generated, an end token and the tokens of a stop string included.
    pub generated_tokens: u64,
}

/// What became of a kept state that a request was to continue from. Whatever it is, the tokens are the same.
///
/// ```
/// assert_eq!(pawl::Reuse::default(), pawl::Reuse::NotAsked);
/// assert_eq!(pawl::Reuse::Gone.to_string(), "gone");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reuse {
    /// The request named none.
    #[default]
    NotAsked,
    /// It was taken over.
    Continued,
    /// Not used: the prompt does not begin with its tokens.
    Diverged,
    /// Not used: the prompt has no token after its own, and a model must run one to draw the next.
    NothingLeft,
    /// Not used: the request ended before it was admitted.
    NotStarted,
    /// It was gone: evicted for other requests, or taken over by another one.
    Gone,
}

impl Reuse {
    /// The name used in JSON output.
    ///
    /// ```
    /// assert_eq!(pawl::Reuse::NothingLeft.as_str(), "nothing_left");
    /// ```
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Reuse::NotAsked => "not_asked",
            Reuse::Continued => "continued",
            Reuse::Diverged => "diverged",
            Reuse::NothingLeft => "nothing_left",
            Reuse::NotStarted => "not_started",
            Reuse::Gone => "gone",
        }
    }
}

impl std::fmt::Display for Reuse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One thing that happened to a request, in order.
///
/// ```no_run
/// fn show(event: &pawl::Event) {
///     match event {
///         pawl::Event::Tokens { text, .. } => print!("{text}"),
///         pawl::Event::Finished { reason, .. } => println!("[{reason}]"),
///         _ => {}
///     }
/// }
/// # let _ = show;
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// New tokens.
    #[non_exhaustive]
    Tokens {
        /// The tokens.
        tokens: Vec<u32>,
        /// The text they complete. Empty when they end within a character or in what may become a
        /// stop string: the text then comes with later tokens.
        text: String,
    },
    /// The last event of a request.
    #[non_exhaustive]
    Finished {
        /// Why it ended.
        reason: FinishReason,
        /// The stop string that ended it.
        stop: Option<String>,
        /// What it used.
        usage: Usage,
        /// Where its time went.
        stats: Box<RequestStats>,
        /// Its state, if it was asked to keep it. Dropping the event frees it.
        kept: Option<Kept>,
        /// What went wrong, for [`FinishReason::Failed`].
        error: Option<RequestError>,
    },
}
