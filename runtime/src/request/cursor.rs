//! How far a request's output has come, with the semantics of a transaction: accepted tokens are
//! first planned, which changes nothing, and then applied, which cannot fail.

use std::sync::Arc;

use super::event::{FinishReason, Usage};
use super::failure::RequestError;
use crate::grammar::{GrammarCursor, MatchError};
use crate::text::{Detokenizer, StopMatch, StopSet, StopState, Tokenizer, TokenizerError};

/// What ends a request.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// End tokens; empty when they are ignored.
    pub(crate) eos: Vec<u32>,
    /// Stop strings that are special tokens.
    pub(crate) stop_tokens: Vec<(u32, String)>,
    pub(crate) stops: StopSet,
    pub(crate) max_new_tokens: u64,
    /// Tokens that fit into the context after the prompt; at least 1.
    pub(crate) room: u64,
}

/// Progress of one request.
#[derive(Debug)]
pub(crate) struct Cursor {
    rules: Arc<Rules>,
    prompt_tokens: u64,
    generated: u64,
    output: Output,
    grammar: Option<Box<GrammarCursor>>,
    finish: Option<Finish>,
}

/// Text assembly: cloned to plan, replaced to apply.
#[derive(Clone, Debug)]
struct Output {
    detokenizer: Option<Detokenizer>,
    stop: StopState,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finish {
    pub(crate) reason: FinishReason,
    /// The stop string, for that reason.
    pub(crate) stop: Option<String>,
}

impl From<FinishReason> for Finish {
    fn from(reason: FinishReason) -> Finish {
        Finish { reason, stop: None }
    }
}

/// What a run of accepted tokens would do; a value, to be grown, then applied or dropped.
#[derive(Debug)]
pub(crate) struct Advance {
    /// The accepted tokens that count: those after the one that ends the request do not.
    pub(crate) tokens: Vec<u32>,
    /// Text to give out.
    pub(crate) text: String,
    /// Set if the request ends with the last of `tokens`.
    pub(crate) finish: Option<Finish>,
    /// Says what the next token may be.
    pub(crate) grammar: Option<Box<GrammarCursor>>,
    output: Output,
    from: u64,
}

impl Advance {
    /// How many of some guesses the grammar allows behind the tokens of the plan.
    pub(crate) fn legal(&mut self, guesses: &[u32]) -> usize {
        let grammar = self.grammar.as_mut();
        grammar.map_or(guesses.len(), |grammar| grammar.legal(guesses))
    }
}

/// A token that cannot be added to a plan.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdvanceError {
    /// It has no text.
    #[error(transparent)]
    Text(#[from] TokenizerError),
    /// The grammar does not get past it.
    #[error(transparent)]
    Grammar(#[from] MatchError),
}

impl From<AdvanceError> for RequestError {
    fn from(error: AdvanceError) -> Self {
        match error {
            AdvanceError::Text(error) => RequestError::text(&error),
            AdvanceError::Grammar(error) => RequestError::grammar(&error),
        }
    }
}

impl Cursor {
    /// A request that has generated nothing.
    pub(crate) fn new(
        prompt_tokens: u64,
        rules: Rules,
        tokenizer: Option<Arc<dyn Tokenizer>>,
        grammar: Option<GrammarCursor>,
    ) -> Cursor {
        let detokenizer = tokenizer.map(|tokenizer| Detokenizer::new(tokenizer, true));
        Cursor {
            rules: Arc::new(rules),
            prompt_tokens,
            generated: 0,
            output: Output {
                detokenizer,
                stop: StopState::default(),
            },
            grammar: grammar.map(Box::new),
            finish: None,
        }
    }

    /// A plan of no tokens yet.
    pub(crate) fn plan(&self) -> Advance {
        Advance {
            grammar: self.grammar.clone(),
            ..self.plan_of_any_text()
        }
    }

    /// A plan that the grammar has no part in.
    fn plan_of_any_text(&self) -> Advance {
        Advance {
            tokens: Vec::new(),
            text: String::new(),
            finish: None,
            grammar: None,
            output: self.output.clone(),
            from: self.generated,
        }
    }

    /// Adds an accepted token to a plan; one after the end adds nothing. Any grouping of the same tokens into plans gives
    /// the same text and the same end.
    ///
    /// # Errors
    /// Tokens whose text cannot be made, and those that the grammar does not allow. The plan is what it was.
    pub(crate) fn extend(&self, advance: &mut Advance, token: u32) -> Result<(), AdvanceError> {
        if self.finish.is_some() || advance.finish.is_some() {
            return Ok(());
        }
        let extended = self.try_extend(advance, token);
        if extended.is_err() && advance.grammar.is_some() {
            advance.grammar = self.grammar_behind(&advance.tokens);
        }
        extended
    }

    /// Adds a token; after an error, only the plan's grammar may be another.
    fn try_extend(&self, advance: &mut Advance, token: u32) -> Result<(), AdvanceError> {
        let planned = u64::try_from(advance.tokens.len()).unwrap_or(u64::MAX);
        let generated = self.generated.saturating_add(planned).saturating_add(1);
        let complete = match &mut advance.grammar {
            None => false,
            Some(grammar) => {
                grammar.accept(token)?;
                grammar.is_complete()
            }
        };
        let (mut output, mut text) = (advance.output.clone(), String::new());
        let step = Step {
            token,
            generated,
            complete,
        };
        advance.finish = output.accept(&self.rules, &step, &mut text)?;
        advance.output = output;
        advance.text.push_str(&text);
        advance.tokens.push(token);
        Ok(())
    }

    /// The grammar behind tokens that it has allowed before.
    fn grammar_behind(&self, tokens: &[u32]) -> Option<Box<GrammarCursor>> {
        let mut grammar = self.grammar.clone()?;
        for token in tokens {
            // What fails here fails again where the next token is drawn.
            let _ = grammar.accept(*token);
        }
        Some(grammar)
    }

    /// How many of some guesses could follow accepted tokens: those up to the first that would end the request.
    pub(crate) fn useful(&self, accepted: &[u32], guesses: &[u32]) -> usize {
        let Rules {
            eos,
            stop_tokens,
            stops,
            ..
        } = &*self.rules;
        let ends =
            |token: &u32| eos.contains(token) || stop_tokens.iter().any(|(id, _)| id == token);
        let end = guesses.iter().position(ends);
        let guesses = guesses
            .get(..=end.unwrap_or(guesses.len()))
            .unwrap_or(guesses);
        if stops.is_empty() || guesses.is_empty() {
            return guesses.len();
        }
        let mut plan = self.plan_of_any_text();
        for token in accepted.iter().chain(guesses) {
            // What cannot be decoded is found out where it is drawn.
            if self.extend(&mut plan, *token).is_err() {
                return guesses.len();
            }
        }
        plan.tokens.len().saturating_sub(accepted.len())
    }

    /// Whether a plan was made for this cursor as it is now.
    pub(crate) fn is_current(&self, advance: &Advance) -> bool {
        advance.from == self.generated
    }

    /// Makes a plan come true. It must be the plan of this cursor as it is now.
    pub(crate) fn apply(&mut self, advance: Advance) {
        self.generated += u64::try_from(advance.tokens.len()).unwrap_or(u64::MAX);
        self.output = advance.output;
        self.grammar = advance.grammar;
        if self.finish.is_none() {
            self.finish = advance.finish;
        }
    }

    /// Ends the request from outside and returns the text that was held back; nothing happens if it
    /// has ended already.
    pub(crate) fn end(&mut self, reason: FinishReason) -> String {
        let mut text = String::new();
        if self.finish.is_some() {
            return text;
        }
        // A tail that cannot be decoded is left out: the request ends either way.
        let _ = self.output.flush(&self.rules, &mut text);
        self.finish = Some(reason.into());
        text
    }

    /// Tokens that may still be generated; 0 once the request has ended.
    pub(crate) fn remaining(&self) -> u64 {
        match self.finish {
            Some(_) => 0,
            None => self
                .rules
                .max_new_tokens
                .min(self.rules.room)
                .saturating_sub(self.generated),
        }
    }

    /// How the request ended, if it has.
    pub(crate) fn finish(&self) -> Option<&Finish> {
        self.finish.as_ref()
    }

    /// What the grammar allows next.
    #[cfg(test)]
    pub(crate) fn allowed_now(&self) -> Option<Vec<u32>> {
        let grammar = self.grammar.as_ref()?;
        Some(crate::grammar::tests::allowed(grammar, 1 << 12))
    }

    /// What the request used so far.
    pub(crate) fn usage(&self) -> Usage {
        Usage {
            prompt_tokens: self.prompt_tokens,
            generated_tokens: self.generated,
            ..Usage::default()
        }
    }
}

/// One token of a plan.
struct Step {
    token: u32,
    /// Which one of the request it is, from 1.
    generated: u64,
    /// Whether it completes what the grammar asks for.
    complete: bool,
}

impl Output {
    /// Takes one token.
    fn accept(
        &mut self,
        rules: &Rules,
        step: &Step,
        text: &mut String,
    ) -> Result<Option<Finish>, TokenizerError> {
        let token = step.token;
        let end = if rules.eos.contains(&token) {
            Some(FinishReason::Eos.into())
        } else if let Some((_, stop)) = rules.stop_tokens.iter().find(|(id, _)| *id == token) {
            Some(Finish {
                reason: FinishReason::StopString,
                stop: Some(stop.clone()),
            })
        } else {
            if let Some(finish) = self.push(rules, token, text)? {
                return Ok(Some(finish));
            }
            let complete = step.complete.then_some(FinishReason::Grammar);
            let end = complete.or_else(|| rules.limit(step.generated));
            end.map(Finish::from)
        };
        match end {
            None => Ok(None),
            Some(end) => Ok(Some(self.flush(rules, text)?.unwrap_or(end))),
        }
    }

    /// The text of one token, up to a stop string.
    fn push(
        &mut self,
        rules: &Rules,
        token: u32,
        text: &mut String,
    ) -> Result<Option<Finish>, TokenizerError> {
        let Some(detokenizer) = &mut self.detokenizer else {
            return Ok(None);
        };
        let mut piece = String::new();
        detokenizer.push(token, &mut piece)?;
        Ok(self.stop.push(&rules.stops, &piece, text).into_finish())
    }

    /// The text that was held back. It may still complete a stop string.
    fn flush(
        &mut self,
        rules: &Rules,
        text: &mut String,
    ) -> Result<Option<Finish>, TokenizerError> {
        let mut piece = String::new();
        if let Some(detokenizer) = &mut self.detokenizer {
            detokenizer.flush(&mut piece)?;
        }
        let finish = self.stop.push(&rules.stops, &piece, text).into_finish();
        if finish.is_none() {
            self.stop.flush(text);
        }
        Ok(finish)
    }
}

impl StopMatch {
    fn into_finish(self) -> Option<Finish> {
        match self {
            StopMatch::None => None,
            StopMatch::Found(stop) => Some(Finish {
                reason: FinishReason::StopString,
                stop: Some(stop),
            }),
        }
    }
}

impl Rules {
    /// Which limit the `generated`-th token reaches.
    fn limit(&self, generated: u64) -> Option<FinishReason> {
        if generated >= self.max_new_tokens {
            Some(FinishReason::MaxNewTokens)
        } else if generated >= self.room {
            Some(FinishReason::ContextLength)
        } else {
            None
        }
    }
}
