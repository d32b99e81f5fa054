//! What callers hold of a state that outlived its request.

use super::worker::Command;
use crate::ids::RequestId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

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
    engine: EngineId,
    id: RequestId,
    tokens: Arc<[u32]>,
    held: Arc<AtomicBool>,
    commands: Sender<Command>,
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

    /// Whether the state is kept by this engine.
    pub(crate) fn belongs_to(&self, engine: EngineId) -> bool {
        self.0.engine == engine
    }
}

/// Handles to the same state are equal.
impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        (self.0.engine, self.0.id) == (other.0.engine, other.0.id)
    }
}

impl Eq for Kept {}

impl Drop for Handle {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Release(self.id));
    }
}

/// How a request that keeps its state makes the handle to it.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) engine: EngineId,
    pub(super) commands: Sender<Command>,
    pub(super) counters: Arc<KeptCounters>,
}

impl Keeper {
    /// The state of a request that has committed `tokens`, and the handle to it.
    pub(super) fn keep(self, id: RequestId, tokens: &[u32]) -> (KeptState, Kept) {
        let held = Arc::new(AtomicBool::new(true));
        let handle = Handle {
            engine: self.engine,
            id,
            tokens: tokens.into(),
            held: Arc::clone(&held),
            commands: self.commands,
        };
        self.counters.held.fetch_add(1, Ordering::Relaxed);
        let state = KeptState {
            id,
            held,
            counters: self.counters,
        };
        (state, Kept(Arc::new(handle)))
    }
}

/// The engine's side of a [`Kept`]. Dropping it tells the handles that the state is gone.
#[derive(Debug)]
pub(super) struct KeptState {
    pub(super) id: RequestId,
    held: Arc<AtomicBool>,
    counters: Arc<KeptCounters>,
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

    pub(super) fn contains(&self, id: RequestId) -> bool {
        self.0.iter().any(|state| state.id == id)
    }

    pub(super) fn push(&mut self, state: KeptState) {
        self.0.push(state);
    }

    pub(super) fn remove(&mut self, id: RequestId) -> Option<KeptState> {
        let at = self.0.iter().position(|state| state.id == id)?;
        Some(self.0.remove(at))
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
