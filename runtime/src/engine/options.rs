//! How an engine schedules.

use super::observe::{Observer, StepObserver};
use crate::error::LoadError;
use crate::limits::UNFINISHED;
use crate::settings;
use crate::speculate::{DraftPolicy, Speculation, Wanted};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

/// How an engine schedules its steps. Defaults come from the model's `engine.dynamic_batching` section.
///
/// ```
/// use pawl::{EngineOptions, Speculation};
///
/// let options = EngineOptions::default().speculation(Speculation::Ngram).max_drafts(5);
/// assert_eq!((options.speculation, options.max_drafts), (Some(Speculation::Ngram), Some(5)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineOptions {
    /// Tokens of one step, over all requests; `None` takes the model's `max_scheduled_tokens`.
    pub max_scheduled_tokens: Option<NonZeroUsize>,
    /// Tokens of one request's prompt per step. Smaller chunks let running requests answer more evenly.
    pub prefill_chunk: NonZeroUsize,
    /// Requests that may be unfinished at once, running and waiting ones; more are refused. 1024 by default.
    pub max_unfinished: usize,
    /// Where drafts come from; `None` takes `PAWL_SPECULATION`, else the model's head where it has one, else n-grams, where
    /// drafts can be undone.
    pub speculation: Option<Speculation>,
    /// Drafts of one row, at most; `None` takes what the model allows, or 3 of that where the number is fixed. Refused with
    /// [`Speculation::Off`].
    pub max_drafts: Option<usize>,
    /// Drafts of one tree, at most, from 1 to 16; `None` takes 8. Refused where the mode is neither
    /// [`Speculation::Tree`] nor [`Speculation::Auto`].
    pub tree_nodes: Option<usize>,
    /// Whether the number of drafts follows what they bring; `None` takes `PAWL_DRAFT_POLICY`, else
    /// [`DraftPolicy::Adaptive`].
    pub draft_policy: Option<DraftPolicy>,
    /// A folder that keeps what steps cost, by model and machine, so that adaptive drafting starts with it; `None` keeps
    /// nothing but where `PAWL_COST_FOLDER` says. Written when the engine ends.
    pub cost_folder: Option<PathBuf>,
    /// Whether to check the invariants of the state around every step; `None` takes `PAWL_AUDIT`, else checks in builds
    /// with debug assertions only.
    pub audit: Option<bool>,
    /// Who watches the steps.
    pub observer: Option<Observer>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            max_scheduled_tokens: None,
            prefill_chunk: Self::PREFILL_CHUNK,
            max_unfinished: UNFINISHED,
            speculation: None,
            max_drafts: None,
            tree_nodes: None,
            draft_policy: None,
            cost_folder: None,
            audit: None,
            observer: None,
        }
    }
}

impl EngineOptions {
    const PREFILL_CHUNK: NonZeroUsize = NonZeroUsize::new(512).expect("512 is not zero");

    /// Limits the tokens of one step, over all requests; 0 keeps the model's limit.
    ///
    /// ```
    /// use pawl::EngineOptions;
    ///
    /// let options = EngineOptions::default().max_scheduled_tokens(256);
    /// assert_eq!(options.max_scheduled_tokens.map(|tokens| tokens.get()), Some(256));
    /// assert_eq!(options.max_scheduled_tokens(0).max_scheduled_tokens, None);
    /// ```
    #[must_use]
    pub fn max_scheduled_tokens(mut self, tokens: usize) -> Self {
        self.max_scheduled_tokens = NonZeroUsize::new(tokens);
        self
    }

    /// Limits the tokens of one request's prompt per step; 0 keeps the default.
    ///
    /// ```
    /// use pawl::EngineOptions;
    ///
    /// assert_eq!(EngineOptions::default().prefill_chunk(64).prefill_chunk.get(), 64);
    /// assert_eq!(EngineOptions::default().prefill_chunk(0), EngineOptions::default());
    /// ```
    #[must_use]
    pub fn prefill_chunk(mut self, tokens: usize) -> Self {
        self.prefill_chunk = NonZeroUsize::new(tokens).unwrap_or(Self::PREFILL_CHUNK);
        self
    }

    /// Limits the requests that may be unfinished at once, running and waiting ones.
    ///
    /// ```
    /// assert_eq!(pawl::EngineOptions::default().max_unfinished(8).max_unfinished, 8);
    /// ```
    #[must_use]
    pub fn max_unfinished(mut self, requests: usize) -> Self {
        self.max_unfinished = requests;
        self
    }

    /// Chooses where drafts come from. What the model cannot do is an error when the engine starts.
    ///
    /// ```
    /// use pawl::{EngineOptions, Speculation};
    ///
    /// assert_eq!(EngineOptions::default().speculation, None);
    /// assert_eq!(EngineOptions::default().speculation(Speculation::Off).speculation, Some(Speculation::Off));
    /// ```
    #[must_use]
    pub fn speculation(mut self, mode: Speculation) -> Self {
        self.speculation = Some(mode);
        self
    }

    /// Limits the drafts of one row, from 1 to what the model captures (7 for `update:8`). With speculation off, whoever
    /// switched it off, it is an error when the engine starts.
    ///
    /// ```
    /// assert_eq!(pawl::EngineOptions::default().max_drafts(7).max_drafts, Some(7));
    /// ```
    #[must_use]
    pub fn max_drafts(mut self, drafts: usize) -> Self {
        self.max_drafts = Some(drafts);
        self
    }

    /// Limits the drafts of one tree, from 1 to 16. In a mode without trees it is an error when the engine starts.
    ///
    /// ```
    /// assert_eq!(pawl::EngineOptions::default().tree_nodes(12).tree_nodes, Some(12));
    /// ```
    #[must_use]
    pub fn tree_nodes(mut self, nodes: usize) -> Self {
        self.tree_nodes = Some(nodes);
        self
    }

    /// Chooses whether the number of drafts follows what they bring.
    ///
    /// ```
    /// use pawl::{DraftPolicy, EngineOptions};
    ///
    /// let options = EngineOptions::default().draft_policy(DraftPolicy::Fixed);
    /// assert_eq!(options.draft_policy, Some(DraftPolicy::Fixed));
    /// ```
    #[must_use]
    pub fn draft_policy(mut self, policy: DraftPolicy) -> Self {
        self.draft_policy = Some(policy);
        self
    }

    /// Keeps what steps cost in a folder, from one process to the next.
    ///
    /// ```
    /// let options = pawl::EngineOptions::default().cost_folder("costs");
    /// assert!(options.cost_folder.is_some());
    /// ```
    #[must_use]
    pub fn cost_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cost_folder = Some(folder.into());
        self
    }

    /// Keeps what steps cost where `PAWL_COST_FOLDER` says, or else in a folder.
    ///
    /// ```
    /// let options = pawl::EngineOptions::default().cost_folder_or("costs");
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn cost_folder_or(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cost_folder = settings::cost_folder().unwrap_or_else(|| Some(folder.into()));
        self
    }

    /// Refuses, before a model is loaded, what no model could serve. [`Engine::new`](crate::Engine::new) refuses the same.
    ///
    /// # Errors
    /// Options that contradict each other or the environment, and environment variables that cannot be understood.
    ///
    /// ```
    /// use pawl::{EngineOptions, Speculation};
    ///
    /// let options = EngineOptions::default().speculation(Speculation::Off).max_drafts(3);
    /// let refused = options.check().unwrap_err().to_string();
    /// assert!(refused.starts_with("max_drafts is 3, but speculation is off"));
    /// ```
    pub fn check(&self) -> Result<(), LoadError> {
        let wanted = self.wanted().or(settings::speculation()?);
        settings::draft_policy()?;
        settings::audit()?;
        Ok(wanted.check()?)
    }

    /// What is asked of speculation.
    pub(crate) fn wanted(&self) -> Wanted {
        Wanted {
            mode: self.speculation,
            by_variable: false,
            max_drafts: self.max_drafts,
            tree_nodes: self.tree_nodes,
            policy: self.draft_policy,
        }
    }

    /// Checks the invariants of the state around every step ([`manual::state`](crate::manual::state)). It takes time in
    /// proportion to the blocks of the cache. Where one does not hold, every request fails and the engine stops.
    ///
    /// ```
    /// let options = pawl::EngineOptions::default().audit(true);
    /// assert_eq!(options.audit, Some(true));
    /// ```
    #[must_use]
    pub fn audit(mut self, wanted: bool) -> Self {
        self.audit = Some(wanted);
        self
    }

    /// Watches every published step: what each row ran and kept, how close its draws were, and the state it left.
    ///
    /// ```
    /// use pawl::{EngineOptions, ObservedStep};
    ///
    /// let options = EngineOptions::default().observe_steps(|step: &ObservedStep<'_>| {
    ///     for row in step.rows() {
    ///         println!("{}: {} of {} tokens kept", row.request(), row.kept(), row.run());
    ///     }
    /// });
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn observe_steps(mut self, observer: impl StepObserver + 'static) -> Self {
        self.observer = Some(Observer(Arc::new(observer)));
        self
    }
}
