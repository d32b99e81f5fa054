//! Token ids to text, one token at a time.

use std::sync::Arc;

use super::tokenizer::{Piece, Tokenizer, TokenizerError};

/// Tokens whose text may be held back because it ends in a replacement character. A tokenizer that
/// really writes one gets it out after so many tokens.
const HELD: usize = 32;
/// Tokens of context. All of it is decoded again for each token, and tokens without text could go on for ever.
const CONTEXT: usize = 32;

/// Assembles text from tokens. Never gives out part of a character, and what it gives out, put
/// together, is the decoded text of all tokens.
///
/// Cloning is cheap: the state is a few bytes or tokens.
#[derive(Clone, Debug)]
pub(crate) struct Detokenizer {
    tokenizer: Arc<dyn Tokenizer>,
    skip_special_tokens: bool,
    /// Start of a character whose end is still to come.
    partial: Vec<u8>,
    /// Tokens whose text is out and gives the next ones their context.
    context: Vec<u32>,
    /// Tokens whose text is not out yet.
    held: Vec<u32>,
}

impl Detokenizer {
    /// A detokenizer at the start of a text.
    pub(crate) fn new(tokenizer: Arc<dyn Tokenizer>, skip_special_tokens: bool) -> Detokenizer {
        Detokenizer {
            tokenizer,
            skip_special_tokens,
            partial: Vec::new(),
            context: Vec::new(),
            held: Vec::new(),
        }
    }

    /// Appends what a token completes to `text`. On an error the token counts as having no text.
    pub(crate) fn push(&mut self, token: u32, text: &mut String) -> Result<(), TokenizerError> {
        if self.skip_special_tokens && self.tokenizer.is_special(token) {
            return Ok(());
        }
        match self.tokenizer.piece(token) {
            Piece::Nothing => Ok(()),
            Piece::Bytes(bytes) => {
                self.release(text)?;
                self.partial.extend(bytes);
                drain_characters(&mut self.partial, text);
                Ok(())
            }
            Piece::Context { open } => {
                self.drain_partial(text);
                self.held.push(token);
                if open {
                    return Ok(());
                }
                self.settle(text)
            }
        }
    }

    /// Appends what is left; the text ends here.
    pub(crate) fn flush(&mut self, text: &mut String) -> Result<(), TokenizerError> {
        self.drain_partial(text);
        self.release(text)
    }

    /// An unfinished character at the end decodes to one replacement character.
    fn drain_partial(&mut self, text: &mut String) {
        if !self.partial.is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
            self.partial.clear();
        }
    }

    /// Gives out the held tokens unless their text may still change.
    fn settle(&mut self, text: &mut String) -> Result<(), TokenizerError> {
        let tail = self.held_text()?;
        if tail.ends_with(char::REPLACEMENT_CHARACTER) && self.held.len() < HELD {
            return Ok(());
        }
        text.push_str(&tail);
        self.advance()
    }

    fn release(&mut self, text: &mut String) -> Result<(), TokenizerError> {
        if self.held.is_empty() {
            return Ok(());
        }
        text.push_str(&self.held_text()?);
        self.advance()
    }

    /// Text of the held tokens after the context.
    fn held_text(&self) -> Result<String, TokenizerError> {
        let before = self.decode(&self.context)?;
        let with_held = self.decode(&[self.context.as_slice(), &self.held].concat())?;
        Ok(with_held.strip_prefix(before.as_str()).map_or_else(
            || {
                with_held
                    .get(common_prefix(&before, &with_held)..)
                    .unwrap_or_default()
                    .to_owned()
            },
            str::to_owned,
        ))
    }

    /// The held tokens become the context. Tokens without text stay in it: they may be a leading
    /// space that decoding removed, and would be removed again from what follows.
    fn advance(&mut self) -> Result<(), TokenizerError> {
        let held = std::mem::take(&mut self.held);
        if self.decode(&held)?.is_empty() {
            self.context.extend(held);
            let old = self.context.len().saturating_sub(CONTEXT);
            self.context.drain(..old);
        } else {
            self.context = held;
        }
        Ok(())
    }

    fn decode(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        if ids.is_empty() {
            return Ok(String::new());
        }
        self.tokenizer.decode(ids, self.skip_special_tokens)
    }
}

/// Length of the longest common prefix that ends between characters.
fn common_prefix(a: &str, b: &str) -> usize {
    a.chars()
        .zip(b.chars())
        .take_while(|(x, y)| x == y)
        .map(|(x, _)| x.len_utf8())
        .sum()
}

/// Moves complete characters from `bytes` to `text`; invalid sequences become replacement
/// characters exactly as they would in the whole text.
fn drain_characters(bytes: &mut Vec<u8>, text: &mut String) {
    let mut rest = bytes.as_slice();
    loop {
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                bytes.clear();
                return;
            }
            Err(error) => {
                let (valid, after) = rest.split_at(error.valid_up_to());
                text.push_str(std::str::from_utf8(valid).unwrap_or_default());
                let Some(invalid) = error.error_len() else {
                    *bytes = after.to_vec();
                    return;
                };
                text.push(char::REPLACEMENT_CHARACTER);
                rest = after.get(invalid..).unwrap_or_default();
            }
        }
    }
}
