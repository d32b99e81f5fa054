//! Between text and token ids: tokenizer, streaming detokenizer, stop strings, chat templates.

mod chat_template;
mod detokenize;
pub(crate) mod guard;
mod jinja;
mod kept;
mod python_json;
mod stop;
mod template_format;
mod template_screen;
#[cfg(test)]
mod template_tests;
mod tokenizer;
mod tokenizer_screen;
#[cfg(test)]
mod tokenizer_screen_tests;

#[cfg(test)]
pub(crate) mod tests;

pub use chat_template::{ChatTemplate, Message, TemplateError};
pub(crate) use detokenize::Detokenizer;
pub(crate) use stop::{StopMatch, StopSet, StopState};
pub use tokenizer::{HfTokenizer, Piece, Tokenizer, TokenizerError};
