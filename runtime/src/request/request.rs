//! A request and its validation.

use std::sync::Arc;

use super::cursor::{Cursor, Rules};
use super::event::Reuse;
use crate::engine::{EngineId, Kept};
use crate::error::ErrorCode;
use crate::grammar::{Ends, Grammar, GrammarCursor, GrammarError, Grammars};
use crate::limits::{PROMPT_BYTES, STOP_BYTES};
use crate::sample::{Sampler, SamplingError, SamplingParams};
use crate::speculate::{DraftSource, Drafts};
use crate::text::{StopSet, Tokenizer, TokenizerError};

/// What to generate. Nothing is checked before it is submitted to a model.
///
/// ```
/// use pawl::{Request, SamplingParams};
///
/// let request = Request::from_text("def fib(n):")
///     .sampling(SamplingParams::sampled(0.7).seed(7))
///     .max_new_tokens(64)
///     .stop("\n\n");
/// # let _ = request;
/// ```
#[derive(Clone, Debug)]
pub struct Request {
    prompt: Prompt,
    sampling: Option<SamplingParams>,
    max_new_tokens: Option<u64>,
    stop: Vec<String>,
    ignore_eos: bool,
    grammar: Option<Grammar>,
    drafts: Option<Drafts>,
    scope: Option<String>,
    keep_state: bool,
    continues: Option<Kept>,
}

#[derive(Clone, Debug)]
enum Prompt {
    Ids(Vec<u32>),
    Text {
        text: String,
        add_special_tokens: bool,
    },
}

impl Request {
    /// Most bytes of a prompt given as text; the longest contexts there are hold a few MB of text.
    ///
    /// ```
    /// assert!("import os".len() <= pawl::Request::MAX_TEXT_BYTES);
    /// ```
    pub const MAX_TEXT_BYTES: usize = PROMPT_BYTES;

    fn new(prompt: Prompt) -> Request {
        Request {
            prompt,
            sampling: None,
            max_new_tokens: None,
            stop: Vec::new(),
            ignore_eos: false,
            grammar: None,
            drafts: None,
            scope: None,
            keep_state: false,
            continues: None,
        }
    }

    /// Continues a plain text. The tokenizer adds the special tokens it puts around a text.
    ///
    /// ```
    /// let request = pawl::Request::from_text("import os");
    /// # let _ = request;
    /// ```
    #[must_use]
    pub fn from_text(text: impl Into<String>) -> Request {
        Request::new(Prompt::Text {
            text: text.into(),
            add_special_tokens: true,
        })
    }

    /// Continues a text that is complete as it stands, special tokens included: the output of a
    /// [`ChatTemplate`](crate::ChatTemplate).
    ///
    /// ```
    /// let request = pawl::Request::from_rendered("<|im_start|>user\nHi<|im_end|>\n");
    /// # let _ = request;
    /// ```
    #[must_use]
    pub fn from_rendered(text: impl Into<String>) -> Request {
        Request::new(Prompt::Text {
            text: text.into(),
            add_special_tokens: false,
        })
    }

    /// Continues token ids; works for models without a tokenizer, too.
    ///
    /// ```
    /// let request = pawl::Request::from_ids([1, 2, 3]);
    /// # let _ = request;
    /// ```
    #[must_use]
    pub fn from_ids(ids: impl Into<Vec<u32>>) -> Request {
        Request::new(Prompt::Ids(ids.into()))
    }

    /// How to choose tokens; the model's own defaults where this is not called.
    ///
    /// ```
    /// use pawl::{Request, SamplingParams};
    ///
    /// let request = Request::from_ids([1]).sampling(SamplingParams::greedy());
    /// # let _ = request;
    /// ```
    #[must_use]
    pub fn sampling(mut self, params: SamplingParams) -> Request {
        self.sampling = Some(params);
        self
    }

    /// Most tokens to generate. The model's context ends a request in any case, and is the only
    /// bound where this is not called.
    ///
    /// ```
    /// let request = pawl::Request::from_ids([1]).max_new_tokens(16);
    /// # let _ = request;
    /// ```
    #[must_use]
    pub fn max_new_tokens(mut self, count: u64) -> Request {
        self.max_new_tokens = Some(count);
        self
    }

    /// Adds a text to stop before. A stop string that is a special token stops at that token, though
    /// special tokens have no text otherwise.
    ///
    /// ```
    /// let request = pawl::Request::from_text("1, 2,").stop("\n").stop("10");
    /// # let _ = request;
    /// ```
    #[must_use]
    pub fn stop(mut self, text: impl Into<String>) -> Request {
        self.stop.push(text.into());
        self
    }

    /// Whether to go on after an end token, for measurements.
    ///
    /// ```
    /// let request = pawl::Request::from_ids([1]).max_new_tokens(100).ignore_eos(true);
    /// # let _ = request;
    /// ```
    #[must_use]
    pub fn ignore_eos(mut self, ignore: bool) -> Request {
        self.ignore_eos = ignore;
        self
    }

    /// Holds the generated text to a grammar: at every position only tokens are drawn that a text of the grammar can go on
    /// with, and an end token only where it may end. Where nothing more may follow, the request ends with
    /// [`FinishReason::Grammar`](crate::FinishReason::Grammar). Other ends (`max_new_tokens`, stop strings) may come before.
    /// Drafts that the grammar does not allow are not run.
    ///
    /// ```
    /// use pawl::{Grammar, Request};
    ///
    /// let request = Request::from_text("On a scale of 1 to 10: ").grammar(Grammar::regex("[1-9]|10"));
    /// # let _ = request;
    /// ```
    #[must_use]
    pub fn grammar(mut self, grammar: Grammar) -> Request {
        self.grammar = Some(grammar);
        self
    }

    /// Shares texts for drafting: where drafts are looked up, the request also finds what earlier requests of the same scope
    /// have read and written, and leaves its own text to later ones. Text never depends on it, but speed does, and speed
    /// can be observed: let a scope stand for people who may know each other's texts. Nothing is shared without a scope.
    ///
    /// ```
    /// let request = pawl::Request::from_ids([1]).lookup_scope("tenant 7");
    /// # let _ = request;
    /// ```
    #[must_use]
    pub fn lookup_scope(mut self, scope: impl Into<String>) -> Request {
        self.scope = Some(scope.into());
        self
    }

    /// Supplies drafts for a text that is largely known beforehand, such as a file to be edited. They replace those of the
    /// engine's own source, and are not used where speculation is off.
    ///
    /// ```
    /// let known = vec![5, 6, 7, 8];
    /// let request = pawl::Request::from_ids([1]).drafts(move |tokens: &[u32], most: usize| {
    ///     known.iter().skip(tokens.len() - 1).take(most).copied().collect()
    /// });
    /// # let _ = request;
    /// ```
    #[must_use]
    pub fn drafts(mut self, source: impl DraftSource + 'static) -> Request {
        self.drafts = Some(Drafts::new(source));
        self
    }

    /// Whether the state stays with the engine when the request ends, for a later request to go on from: a chat's next
    /// turn computes only what is new. The handle comes with the end, also that of a cancelled request, unless nothing was
    /// committed or the request failed. With `max_new_tokens(0)` the prompt is read and nothing generated, which readies a
    /// prefix for requests to come.
    ///
    /// ```
    /// let request = pawl::Request::from_ids([1]).keep_state(true);
    /// # let _ = request;
    /// ```
    #[must_use]
    pub fn keep_state(mut self, keep: bool) -> Request {
        self.keep_state = keep;
        self
    }

    /// Goes on from a kept state instead of computing it again; `None` from nothing. The prompt is still the whole one,
    /// and must begin with [`Kept::tokens`] and have at least one token more; otherwise, or when the state is gone by
    /// the time the request arrives or while it waits, everything is computed. The tokens are the same either way, and
    /// [`Usage::reuse`](crate::Usage) tells which it was. The first request that arrives with a state takes it over.
    ///
    /// ```no_run
    /// # use pawl::{Engine, Request};
    /// # fn next(engine: &Engine, kept: pawl::Kept) -> Result<(), pawl::GenerateError> {
    /// let prompt = [kept.tokens(), &[7, 8]].concat();
    /// let answer = engine.generate(Request::from_ids(prompt).continue_from(kept))?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn continue_from(mut self, kept: impl Into<Option<Kept>>) -> Request {
        self.continues = kept.into();
        self
    }

    /// Checks everything and readies what running the request on `engine` needs.
    pub(crate) fn prepare(
        &self,
        model: &ModelLimits,
        fresh_seed: u64,
        engine: EngineId,
    ) -> Result<Prepared, SubmitError> {
        let params = self.sampling.as_ref().unwrap_or(&model.sampling);
        let sampler = Sampler::new(params, fresh_seed)?;
        let prompt = self.prompt_ids(model)?;
        let prompt_tokens = u64::try_from(prompt.len()).unwrap_or(u64::MAX);
        let room = model.context_length.saturating_sub(prompt_tokens);
        if room == 0 {
            return Err(SubmitError::PromptTooLong {
                tokens: prompt_tokens,
                context_length: model.context_length,
            });
        }
        if self.max_new_tokens == Some(0) && !self.keep_state {
            return Err(SubmitError::NothingToGenerate);
        }
        let rules = Rules {
            eos: if self.ignore_eos {
                Vec::new()
            } else {
                model.eos.clone()
            },
            stop_tokens: self.stop_tokens(model)?,
            stops: self.stop_set(model)?,
            max_new_tokens: self.max_new_tokens.unwrap_or(u64::MAX),
            room,
        };
        let grammar = self.grammar_cursor(model, &rules, &prompt)?;
        let cursor = Cursor::new(prompt_tokens, rules, model.tokenizer.clone(), grammar);
        let (continues, reuse) = self.continuation(&prompt, engine)?;
        Ok(Prepared {
            prompt,
            sampler,
            cursor,
            drafts: self.drafts.clone(),
            scope: self.scope.clone(),
            keep: self.keep_state,
            continues,
            reuse,
        })
    }

    /// The state to continue, if the prompt is a continuation of it.
    fn continuation(
        &self,
        prompt: &[u32],
        engine: EngineId,
    ) -> Result<(Option<Kept>, Reuse), SubmitError> {
        let Some(kept) = &self.continues else {
            return Ok((None, Reuse::NotAsked));
        };
        if !kept.belongs_to(engine) {
            return Err(SubmitError::ForeignState);
        }
        Ok(match prompt.strip_prefix(kept.tokens()) {
            None => (None, Reuse::Diverged),
            Some([]) => (None, Reuse::NothingLeft),
            Some(_) => (Some(kept.clone()), Reuse::NotStarted),
        })
    }

    /// Where the generated text begins in the grammar.
    fn grammar_cursor(
        &self,
        model: &ModelLimits,
        rules: &Rules,
        prompt: &[u32],
    ) -> Result<Option<GrammarCursor>, SubmitError> {
        let Some(grammar) = &self.grammar else {
            return Ok(None);
        };
        let tokenizer = model.tokenizer.as_ref();
        let tokenizer = tokenizer.ok_or(SubmitError::NoTokenizer {
            wanted: "a grammar",
        })?;
        let begins = grammar.begins().unwrap_or(prompt.len());
        let begun = prompt.get(begins..).ok_or(GrammarError::Beginning {
            kind: grammar.kind(),
            position: begins,
            tokens: prompt.len(),
        })?;
        let stops = rules.stop_tokens.iter().map(|(id, _)| *id);
        let ends = rules.eos.iter().copied().chain(stops);
        let ends: Ends = ends.filter(|id| *id < model.vocab_size).collect();
        let vocabulary = (tokenizer, model.vocab_size);
        let cursor = model
            .grammars
            .cursor(grammar, (begun, begins), ends, vocabulary)?;
        Ok(Some(cursor))
    }

    fn prompt_ids(&self, model: &ModelLimits) -> Result<Vec<u32>, SubmitError> {
        let ids = match &self.prompt {
            Prompt::Ids(ids) => ids.clone(),
            Prompt::Text {
                text,
                add_special_tokens,
            } => {
                let tokenizer = model.tokenizer.as_ref();
                let tokenizer = tokenizer.ok_or(SubmitError::NoTokenizer {
                    wanted: "a text prompt",
                })?;
                if text.len() > PROMPT_BYTES {
                    return Err(SubmitError::PromptTextTooLong {
                        bytes: text.len(),
                        limit: PROMPT_BYTES,
                    });
                }
                tokenizer.encode(text, *add_special_tokens)?
            }
        };
        if ids.is_empty() {
            return Err(SubmitError::EmptyPrompt);
        }
        match ids.iter().position(|&id| id >= model.vocab_size) {
            Some(index) => Err(SubmitError::UnknownToken {
                index,
                id: ids.get(index).copied().unwrap_or_default(),
                vocab_size: model.vocab_size,
            }),
            None => Ok(ids),
        }
    }

    fn stop_tokens(&self, model: &ModelLimits) -> Result<Vec<(u32, String)>, SubmitError> {
        let Some(tokenizer) = &model.tokenizer else {
            return Ok(Vec::new());
        };
        let special = self.stop.iter().filter_map(|stop| {
            let id = tokenizer
                .token_to_id(stop)
                .filter(|&id| tokenizer.is_special(id))?;
            Some((id, stop.clone()))
        });
        Ok(special.collect())
    }

    fn stop_set(&self, model: &ModelLimits) -> Result<StopSet, SubmitError> {
        if let Some(index) = self.stop.iter().position(String::is_empty) {
            return Err(SubmitError::EmptyStopString { index });
        }
        let bytes = self.stop.iter().map(String::len).sum();
        if bytes > STOP_BYTES {
            return Err(SubmitError::StopStringsTooLong {
                bytes,
                limit: STOP_BYTES,
            });
        }
        if !self.stop.is_empty() && model.tokenizer.is_none() {
            return Err(SubmitError::NoTokenizer {
                wanted: "stop strings",
            });
        }
        Ok(StopSet::new(&self.stop))
    }
}

/// What a model allows and supplies to its requests.
#[derive(Clone, Debug)]
pub(crate) struct ModelLimits {
    /// Token ids are below this.
    pub(crate) vocab_size: u32,
    /// Tokens of prompt and answer together.
    pub(crate) context_length: u64,
    /// End tokens.
    pub(crate) eos: Vec<u32>,
    /// Absent where the model folder has none: prompts are ids then, and there is no text.
    pub(crate) tokenizer: Option<Arc<dyn Tokenizer>>,
    /// Used by requests that do not say how to sample.
    pub(crate) sampling: SamplingParams,
    /// Reads what requests ask of their texts.
    pub(crate) grammars: Grammars,
}

/// A checked request, ready to run.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) prompt: Vec<u32>,
    pub(crate) sampler: Sampler,
    pub(crate) cursor: Cursor,
    pub(crate) drafts: Option<Drafts>,
    /// With whom it shares its text for drafting.
    pub(crate) scope: Option<String>,
    /// Whether its state outlives it.
    pub(crate) keep: bool,
    /// The state that it continues.
    pub(crate) continues: Option<Kept>,
    /// Why it continues none, where it was to.
    pub(crate) reuse: Reuse,
}

/// A request that cannot run.
///
/// ```
/// assert!(pawl::SubmitError::EmptyPrompt.to_string().contains("at least one token"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The prompt has no tokens.
    #[error("the prompt is empty: a model needs at least one token to continue")]
    EmptyPrompt,
    /// The prompt holds a token that the model does not have.
    #[error("prompt token {index} is {id}, but the model's vocabulary has {vocab_size} tokens")]
    #[non_exhaustive]
    UnknownToken {
        /// Its place in the prompt.
        index: usize,
        /// The token.
        id: u32,
        /// Ids are below this.
        vocab_size: u32,
    },
    /// The prompt leaves no room to generate.
    #[error(
        "the prompt has {tokens} tokens and the model's context {context_length}: \
         there is no room to generate"
    )]
    #[non_exhaustive]
    PromptTooLong {
        /// Tokens of the prompt.
        tokens: u64,
        /// Tokens the model can hold.
        context_length: u64,
    },
    /// The prompt's text is longer than any that is tokenized.
    #[error("the prompt has {bytes} bytes of text, at most {limit} are tokenized")]
    #[non_exhaustive]
    PromptTextTooLong {
        /// Bytes of the text.
        bytes: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// `max_new_tokens` is 0 and the state is not kept.
    #[error("max_new_tokens is 0: there is nothing to generate")]
    NothingToGenerate,
    /// A stop string is empty.
    #[error("stop string {index} is empty")]
    #[non_exhaustive]
    EmptyStopString {
        /// Its place among the stop strings.
        index: usize,
    },
    /// The stop strings are too long.
    #[error("the stop strings have {bytes} bytes together, at most {limit} are allowed")]
    #[non_exhaustive]
    StopStringsTooLong {
        /// Bytes given.
        bytes: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// The model folder has no tokenizer.
    #[error(
        "{wanted}: the model has no tokenizer (tokenizer.json), only prompts of token ids work"
    )]
    #[non_exhaustive]
    NoTokenizer {
        /// What needs it.
        wanted: &'static str,
    },
    /// The state to continue from is kept by another engine.
    #[error("the state to continue from is kept by another engine")]
    ForeignState,
    /// Too many requests are waiting; try again later.
    #[error("too many requests are waiting")]
    QueueFull,
    /// The engine has stopped.
    #[error("the engine has stopped")]
    Stopped,
    /// The sampling parameters are wrong.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// The prompt cannot be tokenized.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The grammar cannot be used.
    #[error(transparent)]
    Grammar(#[from] GrammarError),
}

impl SubmitError {
    /// The kind of error.
    ///
    /// ```
    /// use pawl::{ErrorCode, SubmitError};
    ///
    /// assert_eq!(SubmitError::EmptyPrompt.code(), ErrorCode::RequestInvalid);
    /// assert_eq!(SubmitError::QueueFull.code(), ErrorCode::QueueFull);
    /// ```
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::QueueFull => ErrorCode::QueueFull,
            Self::Stopped => ErrorCode::EngineStopped,
            Self::EmptyPrompt
            | Self::UnknownToken { .. }
            | Self::PromptTooLong { .. }
            | Self::PromptTextTooLong { .. }
            | Self::NothingToGenerate
            | Self::EmptyStopString { .. }
            | Self::StopStringsTooLong { .. }
            | Self::NoTokenizer { .. }
            | Self::ForeignState
            | Self::Sampling(_)
            | Self::Tokenizer(_)
            | Self::Grammar(_) => ErrorCode::RequestInvalid,
        }
    }
}
