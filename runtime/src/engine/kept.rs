//! What callers hold of a state that outlived its request.

use super::client::Client;
use super::completion::GenerateError;
use super::copies::CopyCommand;
use super::worker::Command;
use crate::error::ErrorCode;
use crate::ids::RequestId;
use crate::request::Request;
use crate::saved::{self, StateFileError};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// One engine, unique within the process: states of one are nothing to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EngineId(u64);

impl EngineId {
    /// That of no engine.
    #[cfg(test)]
    pub(crate) const NONE: Self = Self(0);

    pub(super) fn fresh() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The state of a finished request, kept by the engine so that a later request can go on from it: fixed state, key/value
/// blocks and the draft head's cache.
///
/// It comes with the end of a request that asked for it ([`Request::keep_state`](crate::Request::keep_state)) and goes to
/// the request that continues it ([`Request::continue_from`](crate::Request::continue_from)). Clones are handles to the same
/// state. Dropping the last one frees it, and so does the engine, oldest state first, when a request could not be
/// admitted otherwise: a kept state is an offer, not a promise. [`Usage::reuse`](crate::Usage) tells what became of it.
///
/// ```no_run
/// # use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
/// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
/// # let engine = Engine::new(model, &EngineOptions::default())?;
/// let first = engine.generate(Request::from_ids([5, 6, 7]).max_new_tokens(8).keep_state(true))?;
/// let longer = [vec![5, 6, 7], first.tokens, vec![9]].concat();
/// let second = engine.generate(Request::from_ids(longer).max_new_tokens(8).continue_from(first.kept))?;
/// println!("{} of {} tokens reused", second.usage.reused_tokens, second.usage.prompt_tokens);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Kept(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    client: Arc<Client>,
    id: RequestId,
    tokens: Arc<[u32]>,
    held: Arc<AtomicBool>,
}

impl Kept {
    /// The tokens that the state has seen: those of the prompt, then the generated ones. The last token that a request
    /// draws is not among them: it was never run.
    ///
    /// ```no_run
    /// # use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
    /// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// # let engine = Engine::new(model, &EngineOptions::default())?;
    /// let answer = engine.generate(Request::from_ids([1, 2]).max_new_tokens(4).keep_state(true))?;
    /// if let Some(kept) = &answer.kept {
    ///     assert!(kept.tokens().starts_with(&[1, 2]));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn tokens(&self) -> &[u32] {
        &self.0.tokens
    }

    /// Whether the engine still held the state a moment ago: it was not evicted, and no request has taken it over.
    ///
    /// ```no_run
    /// # use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
    /// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// # let engine = Engine::new(model, &EngineOptions::default())?;
    /// let answer = engine.generate(Request::from_ids([1]).max_new_tokens(4).keep_state(true))?;
    /// let held = answer.kept.is_some_and(|kept| kept.is_held());
    /// println!("{held}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.held.load(Ordering::Acquire)
    }

    /// The identity under which the engine keeps the state: that of the request that left it.
    ///
    /// ```no_run
    /// # use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
    /// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// # let engine = Engine::new(model, &EngineOptions::default())?;
    /// let answer = engine.generate(Request::from_ids([1]).max_new_tokens(4).keep_state(true))?;
    /// if let Some(kept) = &answer.kept {
    ///     println!("the state of {}", kept.id());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn id(&self) -> RequestId {
        self.0.id
    }

    /// Another state with the same tokens, to be continued in another way. It shares what never changes and takes a place
    /// of its own among the requests that fit at once, so it costs little but is not free.
    ///
    /// ```no_run
    /// # use pawl::{Engine, Kept, Request};
    /// # fn branch(engine: &Engine, kept: Kept) -> Result<(), Box<dyn std::error::Error>> {
    /// let other = kept.fork()?;
    /// let first = [kept.tokens(), &[7]].concat();
    /// let second = [kept.tokens(), &[8]].concat();
    /// let one = engine.submit(Request::from_ids(first).continue_from(kept))?;
    /// let two = engine.submit(Request::from_ids(second).continue_from(other))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// States that are gone; lack of room.
    pub fn fork(&self) -> Result<Self, KeptError> {
        Self::fork_of(self.0.id, &self.0.client)
    }

    /// A state of the first `tokens` tokens; this one stays as it is. It begins as a fork of the longest kept state of this
    /// engine that has seen a part of them and nothing else, and the rest is computed; for a model without fixed state
    /// a part of a longer state serves. Works for a state that is gone, too: its tokens are still known.
    ///
    /// Forks made on the way, at the turns of a conversation say, are what makes going back to them cheap.
    ///
    /// ```no_run
    /// # fn undo(kept: &pawl::Kept) -> Result<(), pawl::KeptError> {
    /// let before = kept.rewind(kept.tokens().len() - 1)?;
    /// assert_eq!(before.tokens().len() + 1, kept.tokens().len());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// No tokens, or more than there are; engines that are full or have stopped.
    pub fn rewind(&self, tokens: usize) -> Result<Self, KeptError> {
        let all = &self.0.tokens;
        let wanted = all.get(..tokens).filter(|wanted| !wanted.is_empty());
        let wanted: Arc<[u32]> = wanted
            .ok_or(KeptError::Position {
                wanted: tokens,
                tokens: all.len(),
            })?
            .into();
        let client = &self.0.client;
        let near = client.ask(|reply| CopyCommand::Nearest {
            tokens: Arc::clone(&wanted),
            client: Arc::clone(client),
            reply,
        });
        let near = near?;
        match near {
            Some(near) if near.tokens().len() == tokens => return Ok(near),
            _ => {}
        }
        let rest = Request::from_ids(wanted.to_vec())
            .max_new_tokens(0)
            .keep_state(true)
            .continue_from(near);
        let rest = client.submit(&rest).map_err(GenerateError::from);
        let read = rest.and_then(|handle| handle.wait());
        read.map_err(KeptError::Replay)?.kept.ok_or(KeptError::Gone)
    }

    /// Writes the state to a file, from which [`Engine::restore`](crate::Engine::restore) reads it, in this process or
    /// another. The file is replaced as a whole: whenever the process ends, it is what it was or complete.
    ///
    /// The file is in the safetensors format (tensors by the graph's names, the tokens, a version and a checksum)
    /// and tied to the model by a fingerprint of its graphs and of pages of every weight; `genai_config.json` and the
    /// tokenizer are not part of that. It holds what was said, and has the permissions of any new file of the process: the
    /// umask says who may read it.
    ///
    /// ```no_run
    /// # use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
    /// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// # let engine = Engine::new(model, &EngineOptions::default())?;
    /// let prefix = Request::from_text("def main():").max_new_tokens(0).keep_state(true);
    /// if let Some(kept) = engine.generate(prefix)?.kept {
    ///     kept.save("prefix.state")?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// States that are gone; files that cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), StateFileError> {
        let client = &self.0.client;
        let id = self.0.id;
        let image = client.ask(|reply| CopyCommand::Image { id, reply });
        let image = image??;
        saved::write(path.as_ref(), &client.layout, &self.0.tokens, &image)
    }

    /// A fork of a running request or a kept state.
    pub(super) fn fork_of(from: RequestId, client: &Arc<Client>) -> Result<Self, KeptError> {
        let forked = client.ask(|reply| CopyCommand::Fork {
            from,
            client: Arc::clone(client),
            reply,
        });
        forked?
    }

    /// Whether the state is kept by this engine.
    pub(crate) fn belongs_to(&self, engine: EngineId) -> bool {
        self.0.client.id == engine
    }
}

/// Handles to the same state are equal.
impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        (self.0.client.id, self.0.id) == (other.0.client.id, other.0.id)
    }
}

impl Eq for Kept {}

impl Drop for Handle {
    fn drop(&mut self) {
        self.client.tell(Command::Release(self.id));
    }
}

/// The engine's side of a [`Kept`]. Dropping it tells the handles that the state is gone.
#[derive(Debug)]
pub(super) struct KeptState {
    pub(super) id: RequestId,
    pub(super) tokens: Arc<[u32]>,
    held: Arc<AtomicBool>,
    counters: Arc<KeptCounters>,
}

impl KeptState {
    /// A state of `tokens`, and the handle to it.
    pub(super) fn new(
        id: RequestId,
        tokens: impl Into<Arc<[u32]>>,
        client: Arc<Client>,
    ) -> (Self, Kept) {
        let counters = Arc::clone(&client.counters);
        counters.held.fetch_add(1, Ordering::Relaxed);
        let state = Self {
            id,
            tokens: tokens.into(),
            held: Arc::new(AtomicBool::new(true)),
            counters,
        };
        let handle = Handle {
            client,
            id,
            tokens: Arc::clone(&state.tokens),
            held: Arc::clone(&state.held),
        };
        (state, Kept(Arc::new(handle)))
    }
}

impl Drop for KeptState {
    fn drop(&mut self) {
        self.counters.held.fetch_sub(1, Ordering::Relaxed);
        self.held.store(false, Ordering::Release);
    }
}

/// All kept states, the oldest first.
#[derive(Debug, Default)]
pub(super) struct KeptStates(Vec<KeptState>);

impl KeptStates {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &KeptState> {
        self.0.iter()
    }

    pub(super) fn get(&self, id: RequestId) -> Option<&KeptState> {
        self.0.iter().find(|state| state.id == id)
    }

    pub(super) fn push(&mut self, state: KeptState) {
        self.0.push(state);
    }

    pub(super) fn remove(&mut self, id: RequestId) -> Option<KeptState> {
        self.take(id).map(|(_, state)| state)
    }

    /// Removes a state, and tells its place.
    pub(super) fn take(&mut self, id: RequestId) -> Option<(usize, KeptState)> {
        let at = self.0.iter().position(|state| state.id == id)?;
        Some((at, self.0.remove(at)))
    }

    /// Puts a state back in the place from which it was taken.
    pub(super) fn put(&mut self, at: usize, state: KeptState) {
        self.0.insert(at.min(self.0.len()), state);
    }
}

/// Numbers about kept states.
#[derive(Debug, Default)]
pub(super) struct KeptCounters {
    held: AtomicUsize,
    evicted: AtomicU64,
}

impl KeptCounters {
    /// Counts an eviction.
    pub(super) fn evicted(&self) {
        self.evicted.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> KeptStats {
        KeptStats {
            held: self.held.load(Ordering::Relaxed),
            evicted: self.evicted.load(Ordering::Relaxed),
        }
    }
}

/// How many states an engine keeps for finished requests.
///
/// ```
/// let stats = pawl::KeptStats::default();
/// assert_eq!((stats.held, stats.evicted), (0, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeptStats {
    /// Held at the moment.
    pub held: usize,
    /// Evicted for requests that could not be admitted otherwise, so far.
    pub evicted: u64,
}

/// Why a state could not be forked, rewound, saved or restored.
///
/// ```no_run
/// # use pawl::{Kept, KeptError};
/// # fn branch(kept: &Kept) -> Result<Option<Kept>, KeptError> {
/// match kept.fork() {
///     Ok(other) => Ok(Some(other)),
///     Err(KeptError::Gone | KeptError::NoRoom { .. }) => Ok(None),
///     Err(error) => Err(error),
/// }
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeptError {
    /// The state is gone: evicted, or taken over by a request; or the request has ended.
    #[error("the state is gone: it was evicted or taken over, or its request has ended")]
    Gone,
    /// The request has committed nothing yet.
    #[error("the request has not run yet")]
    NothingCommitted,
    /// A length that cannot be had.
    #[error("a state of {wanted} tokens is not among 1 to {tokens}")]
    #[non_exhaustive]
    Position {
        /// Tokens asked for.
        wanted: usize,
        /// Tokens of the state.
        tokens: usize,
    },
    /// Requests and kept states fill the engine.
    #[error("there is no room for another state: {reason}")]
    #[non_exhaustive]
    NoRoom {
        /// What there is too little of.
        reason: String,
    },
    /// The state could not be copied; everything is as it was.
    #[error("the state could not be copied: {reason}")]
    #[non_exhaustive]
    Failed {
        /// Why.
        reason: String,
    },
    /// The tokens could not be computed again.
    #[error("the tokens could not be computed again: {0}")]
    Replay(#[source] GenerateError),
    /// The engine has stopped.
    #[error("the engine has stopped")]
    Stopped,
}

impl KeptError {
    /// The kind of error.
    ///
    /// ```
    /// assert_eq!(pawl::KeptError::Gone.code(), pawl::ErrorCode::StateGone);
    /// ```
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Gone => ErrorCode::StateGone,
            Self::NothingCommitted | Self::Position { .. } => ErrorCode::RequestInvalid,
            Self::NoRoom { .. } => ErrorCode::NoRoom,
            Self::Failed { .. } => ErrorCode::StepDiscarded,
            Self::Replay(error) => error.code(),
            Self::Stopped => ErrorCode::EngineStopped,
        }
    }
}
