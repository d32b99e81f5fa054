//! What a request's text may be: grammars, what the tokens of a model spell, and cursors that go through a grammar token
//! by token.

mod cursor;
mod definition;
mod error;
#[cfg(test)]
pub(crate) mod tests;
mod vocabulary;

pub(crate) use cursor::{Ends, GrammarCursor, MatchError};
pub use definition::{Grammar, GrammarKind};
pub use error::GrammarError;
pub(crate) use vocabulary::Grammars;
