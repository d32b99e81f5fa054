//! Grammars that cannot be used.

use super::definition::GrammarKind;

/// A grammar that a request cannot be held to.
///
/// ```no_run
/// # use pawl::{Engine, GenerateError, Grammar, Request, SubmitError};
/// # fn ask(engine: &Engine) {
/// let wrong = Request::from_text("x = ").grammar(Grammar::regex("(1"));
/// match engine.submit(wrong) {
///     Err(SubmitError::Grammar(error)) => println!("{error}"), // the regular expression: ... unclosed group
///     _ => {}
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrammarError {
    /// It is longer than any that is read.
    #[error("the {kind} has {bytes} bytes, at most {limit} are read")]
    #[non_exhaustive]
    TooLong {
        /// How it is written.
        kind: GrammarKind,
        /// Bytes given.
        bytes: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// It is not a grammar of its kind, asks for what is not supported, or for more than there may be.
    #[error("the {kind} cannot be used: {message}")]
    #[non_exhaustive]
    Unusable {
        /// How it is written.
        kind: GrammarKind,
        /// What is wrong, and where.
        message: String,
    },
    /// No token of the model begins a text that it allows.
    #[error("the {kind} allows no text that begins with a token of the model: {message}")]
    #[non_exhaustive]
    Unsatisfiable {
        /// How it is written.
        kind: GrammarKind,
        /// What was found.
        message: String,
    },
    /// Its text is complete before anything is generated.
    #[error("the {kind} allows nothing more: there is nothing to generate")]
    #[non_exhaustive]
    Complete {
        /// How it is written.
        kind: GrammarKind,
    },
    /// It is said to have begun behind the prompt.
    #[error("the {kind} is said to begin with token {position}, but the prompt has {tokens}")]
    #[non_exhaustive]
    Beginning {
        /// How it is written.
        kind: GrammarKind,
        /// What was given.
        position: usize,
        /// Tokens of the prompt.
        tokens: usize,
    },
    /// The part of the prompt that it is said to have begun with is not of it.
    #[error("prompt token {index} is {id}, which the {kind} does not allow there")]
    #[non_exhaustive]
    Prompt {
        /// How it is written.
        kind: GrammarKind,
        /// The first token that it does not allow.
        index: usize,
        /// The token.
        id: u32,
    },
    /// What the tokens of the model spell cannot be found out.
    #[error("tokenizer: its tokens cannot be held to a grammar: {message}")]
    #[non_exhaustive]
    Vocabulary {
        /// The cause.
        message: String,
    },
}
