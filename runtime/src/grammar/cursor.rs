//! How far one text has come through its grammar.

use llguidance::Matcher;
use llguidance::toktrie::SimpleVob;
use std::sync::Arc;

/// Tokens that end a request, and are allowed wherever the text may end.
pub(crate) type Ends = Arc<[u32]>;

/// The grammar's part of a request's progress: cloned to plan, replaced to apply.
///
/// A function of the grammar and of the tokens accepted so far: clones share what was found out about the grammar, never
/// where they are in it.
#[derive(Clone)]
pub(crate) struct GrammarCursor {
    matcher: Matcher,
    ends: Ends,
    /// The token that stands for the end of the text; the model has none of this number.
    end: u32,
    /// What may follow, once somebody has asked.
    allowed: Option<SimpleVob>,
    complete: bool,
}

/// What is told of a text that is not complete and cannot go on.
const NOTHING: &str = "no token can follow";

/// A grammar that lets nothing follow, or does not get there within its limits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct MatchError(String);

impl MatchError {
    pub(super) fn new(error: &dyn std::fmt::Display) -> Self {
        Self(told(&error.to_string()))
    }
}

/// What an error says, without the state and stack that follow in it.
pub(super) fn told(message: &str) -> String {
    let end = message.find("\n<").unwrap_or(message.len());
    let message = message.get(..end).unwrap_or(message).trim_end();
    match message {
        "NoExtensionBias" => NOTHING.to_owned(),
        message => {
            genai_config_schema::shortened(message, genai_config_schema::MAX_TOLD).to_string()
        }
    }
}

impl std::fmt::Debug for GrammarCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrammarCursor")
            .field("complete", &self.complete)
            .finish_non_exhaustive()
    }
}

impl GrammarCursor {
    /// The beginning of a text over a vocabulary of so many tokens.
    pub(super) fn new(matcher: Matcher, ends: Ends, vocab_size: u32) -> Self {
        Self {
            matcher,
            ends,
            end: vocab_size,
            allowed: None,
            complete: false,
        }
    }

    /// Whether nothing may follow, not even a token that ends the request.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether a token ends the request, and is no part of the text.
    pub(crate) fn is_end(&self, token: u32) -> bool {
        self.ends.contains(&token)
    }

    /// Excludes every token that may not follow. `logits` is `[vocabulary]`.
    ///
    /// # Errors
    /// Nothing may follow a text that is not complete, or what may follow cannot be found out.
    pub(crate) fn mask(&mut self, logits: &mut [f32]) -> Result<(), MatchError> {
        let allowed = self.allowed()?.as_slice();
        let (groups, _) = logits.as_chunks_mut::<32>();
        let masked = groups.len() * 32;
        for (group, &word) in groups.iter_mut().zip(allowed) {
            exclude(group, word);
        }
        if let (Some(rest), Some(&word)) = (logits.get_mut(masked..), allowed.get(masked / 32)) {
            exclude(rest, word);
        }
        Ok(())
    }

    /// Takes a token; one that ends the request changes nothing.
    ///
    /// # Errors
    /// Tokens that may not follow.
    pub(crate) fn accept(&mut self, token: u32) -> Result<(), MatchError> {
        if self.is_end(token) {
            return Ok(());
        }
        self.allowed = None;
        let taken = self.matcher.consume_token(token);
        taken.map_err(|error| MatchError::new(&error))?;
        self.complete = self.matcher.is_stopped();
        // Where no token can end the request, a text that can only end must be noticed.
        if !self.complete && self.ends.is_empty() {
            self.complete = self.allowed()?.is_zero();
        }
        Ok(())
    }

    /// How many of these tokens may follow, one after the other.
    pub(crate) fn legal(&mut self, tokens: &[u32]) -> usize {
        if self.complete {
            return 0;
        }
        let ending = tokens.iter().position(|token| self.is_end(*token));
        let mut text = tokens
            .get(..ending.unwrap_or(tokens.len()))
            .unwrap_or(tokens)
            .to_vec();
        let length = text.len();
        if ending.is_some() {
            text.push(self.end);
        }
        // What cannot be found out here is found out where it is drawn.
        self.matcher.validate_tokens(&text).unwrap_or(length)
    }

    /// The tokens that may follow. Empty where the text is complete and no token can say so.
    fn allowed(&mut self) -> Result<&SimpleVob, MatchError> {
        if self.allowed.is_none() {
            let allowed = self.matcher.compute_mask();
            let mut allowed = allowed.map_err(|error| MatchError::new(&error))?;
            let may_end = allowed.is_allowed(self.end);
            allowed.disallow_token(self.end);
            // A token that ends the request may also spell something.
            for end in self.ends.iter() {
                allowed.set(*end as usize, may_end);
            }
            if !may_end && allowed.is_zero() {
                return Err(MatchError::new(&NOTHING));
            }
            self.allowed = Some(allowed);
        }
        self.allowed
            .as_ref()
            .ok_or_else(|| MatchError::new(&NOTHING))
    }

    /// Finds out whether anything may follow at all.
    pub(super) fn begin(&mut self) -> Result<(), MatchError> {
        self.complete |= self.allowed()?.is_zero();
        Ok(())
    }
}

/// Excludes up to 32 tokens whose bit is not set.
fn exclude(logits: &mut [f32], allowed: u32) {
    match allowed {
        u32::MAX => {}
        0 => logits.fill(f32::NEG_INFINITY),
        _ => {
            for (bit, logit) in logits.iter_mut().enumerate() {
                if allowed >> bit & 1 == 0 {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
    }
}
