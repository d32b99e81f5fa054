//! What a watcher of the engine sees of each step.

use super::active::{Active, Delivered};
use super::core::Core;
use super::error::EngineError;
use crate::evaluate::StateTensor;
use crate::ids::RequestId;
use crate::model::spec::StateSpec;
use crate::schedule::{RowPlan, StepPlan};
use crate::speculate::{DraftTree, Source};
use crate::txn::Composite;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Watches the steps of an engine, for debugging and for tests; see [`EngineOptions::observe_steps`].
///
/// ```
/// use pawl::{EngineOptions, ObservedStep, StepObserver};
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// #[derive(Default)]
/// struct Counter(AtomicU64);
///
/// impl StepObserver for Counter {
///     fn published(&self, step: &ObservedStep<'_>) {
///         self.0.fetch_add(step.rows().len() as u64, Ordering::Relaxed);
///     }
/// }
///
/// let options = EngineOptions::default().observe_steps(Counter::default());
/// # let _ = options;
/// ```
///
/// [`EngineOptions::observe_steps`]: crate::EngineOptions::observe_steps
pub trait StepObserver: Send + Sync {
    /// A step was published; the callers of its requests have not heard of it yet. Runs on the engine's thread, which
    /// waits for it, so a slow observer slows every request and a panic in it stops the engine.
    fn published(&self, step: &ObservedStep<'_>);
}

impl<F: Fn(&ObservedStep<'_>) + Send + Sync> StepObserver for F {
    fn published(&self, step: &ObservedStep<'_>) {
        self(step);
    }
}

/// A shared [`StepObserver`]. Two are equal when they are the same.
///
/// ```
/// use pawl::{EngineOptions, ObservedStep};
///
/// let options = EngineOptions::default().observe_steps(|_: &ObservedStep<'_>| {});
/// assert_eq!(options.observer, options.clone().observer);
/// assert!(EngineOptions::default().observer.is_none());
/// ```
#[derive(Clone)]
pub struct Observer(pub(super) Arc<dyn StepObserver>);

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

impl PartialEq for Observer {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Observer {}

/// One published step.
///
/// ```
/// let drafting = |step: &pawl::ObservedStep<'_>| step.rows().iter().any(|row| row.drafts() > 0);
/// # let _ = drafting;
/// ```
#[derive(Debug)]
pub struct ObservedStep<'a> {
    rows: Vec<ObservedRow<'a>>,
    times: StepTimes,
}

/// Where the time of a step went.
///
/// ```
/// let commits = |step: &pawl::ObservedStep<'_>| step.times().commit.as_secs_f64();
/// # let _ = commits;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepTimes {
    /// Running the decoder.
    pub run: Duration,
    /// Making drafts for the next step, a head's runs included.
    pub draft: Duration,
    /// From the decision on what is kept until it is published: validating, making the states of kept prefixes, and
    /// publishing.
    pub commit: Duration,
}

impl<'a> ObservedStep<'a> {
    /// Its rows, in batch order: decoding requests, then prompts.
    #[must_use]
    pub fn rows(&self) -> &[ObservedRow<'a>] {
        &self.rows
    }

    /// Where its time went.
    #[must_use]
    pub fn times(&self) -> StepTimes {
        self.times
    }
}

/// One row of a published step: what one request ran and what it keeps.
///
/// ```
/// fn describe(row: &pawl::ObservedRow<'_>) -> String {
///     let (kept, run, committed) = (row.kept(), row.run(), row.past() + row.kept());
///     format!("{}: {kept} of {run} tokens kept, {committed} in all", row.request())
/// }
/// # let _ = describe;
/// ```
#[derive(Clone, Copy)]
pub struct ObservedRow<'a> {
    row: &'a RowPlan,
    active: &'a Active,
    told: Option<&'a Delivered>,
    composite: &'a Composite,
    spec: &'a StateSpec,
}

/// One token that a request drew.
///
/// ```
/// fn near_ties(row: &pawl::ObservedRow<'_>) -> usize {
///     row.drawn().iter().filter(|draw| draw.margin < 1e-4).count()
/// }
/// # let _ = near_ties;
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Draw {
    /// The token.
    pub token: u32,
    /// How far the decision was from another token, in logit units: no change that moves any two logits relative to each
    /// other by less gives another token. Noise and filter cuts are counted; distances to cuts are exact only below
    /// `1e-3`. Infinite when nothing else can win.
    pub margin: f32,
}

/// Committed keys and values of one attention layer.
///
/// ```
/// fn positions(row: &pawl::ObservedRow<'_>) -> Result<Vec<usize>, pawl::EngineError> {
///     Ok(row.cache()?.iter().map(|tensor| tensor.shape[0]).collect())
/// }
/// # let _ = positions;
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CacheTensor {
    /// Layer.
    pub layer: u32,
    /// `[tokens, kv_heads, head_dim]`.
    pub shape: [usize; 3],
    /// Row-major.
    pub keys: Vec<f32>,
    /// Row-major.
    pub values: Vec<f32>,
}

impl fmt::Debug for ObservedRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObservedRow")
            .field("request", &self.request())
            .field("past", &self.past())
            .field("run", &self.run())
            .field("drafts", &self.drafts())
            .field("kept", &self.kept())
            .field("drawn", &self.drawn())
            .finish_non_exhaustive()
    }
}

impl ObservedRow<'_> {
    /// Whose row.
    #[must_use]
    pub fn request(&self) -> RequestId {
        self.active.id
    }

    /// Tokens of the request whose state was committed before the step.
    #[must_use]
    pub fn past(&self) -> usize {
        self.row.past()
    }

    /// Tokens that the row ran, drafts included.
    #[must_use]
    pub fn run(&self) -> usize {
        self.row.num_tokens()
    }

    /// How many of them, the last ones, were drafts.
    #[must_use]
    pub fn drafts(&self) -> usize {
        self.row.drafts
    }

    /// Tokens of the row that are kept: the known ones and the accepted drafts.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.active.committed.saturating_sub(self.row.past())
    }

    /// Whether the row ran a prompt or a part of one.
    #[must_use]
    pub fn is_prefill(&self) -> bool {
        self.row.is_prefill
    }

    /// All tokens of the request, prompt and generated. Those from `past + kept` on have no state yet.
    #[must_use]
    pub fn tokens(&self) -> &[u32] {
        &self.active.tokens
    }

    /// The tokens drawn in the step, the last ones of [`Self::tokens`]: one more than drafts were accepted, fewer where
    /// the request ended, none where its prompt goes on.
    #[must_use]
    pub fn drawn(&self) -> &[Draw] {
        self.told.map_or(&[], |told| &told.draws)
    }

    /// The drafts that were run, those of branches included; `None` for a row that drew nothing.
    #[must_use]
    pub fn drafted(&self) -> Option<&DraftTree> {
        self.told.map(|told| &told.ran)
    }

    /// Rows that branched off this one.
    #[must_use]
    pub fn branches(&self) -> usize {
        self.row.branches.len()
    }

    /// Which row was kept: 0 for this one, `i` for branch `i - 1`.
    #[must_use]
    pub fn winner(&self) -> usize {
        self.told.map_or(0, |told| told.round.winner)
    }

    /// Who made the drafts; the first one where a lookup has added to those of a head.
    #[must_use]
    pub fn source(&self) -> Option<Source> {
        self.told.and_then(|told| told.round.source)
    }

    /// Why so many drafts were made, in words.
    #[must_use]
    pub fn why(&self) -> String {
        let why = self.told.and_then(|told| told.why);
        why.map_or_else(String::new, |why| why.to_string())
    }

    /// The fixed state after `past + kept` tokens, copied out.
    ///
    /// # Errors
    /// Memory that the host cannot read.
    pub fn states(&self) -> Result<Vec<StateTensor>, EngineError> {
        state_tensors(self.spec, self.composite, self.request())
    }

    /// Keys and values of the first `past + kept` tokens, copied out.
    ///
    /// # Errors
    /// Memory that the host cannot read.
    pub fn cache(&self) -> Result<Vec<CacheTensor>, EngineError> {
        let committed = self.composite.committed_cache(self.request());
        let committed = committed.map_err(|e| EngineError::discarded(&e))?;
        let Some(paged) = &self.spec.paged else {
            return Ok(Vec::new());
        };
        let tokens = self.active.committed;
        let tensors = paged.layers.iter().zip(committed);
        let tensors = tensors.map(|(names, found)| CacheTensor {
            layer: names.layer,
            shape: [tokens, paged.kv_heads, paged.head_dim],
            keys: found.keys,
            values: found.values,
        });
        Ok(tensors.collect())
    }
}

/// The committed fixed state of a resident request, copied out.
pub(crate) fn state_tensors(
    spec: &StateSpec,
    composite: &Composite,
    request: RequestId,
) -> Result<Vec<StateTensor>, EngineError> {
    let rows = composite.committed_rows(request);
    let rows = rows.map_err(|e| EngineError::discarded(&e))?;
    let tensors = spec.fixed.iter().zip(rows);
    let tensors = tensors.map(|(fixed, values)| StateTensor {
        name: fixed.input.clone(),
        layer: fixed.layer,
        shape: fixed.row_shape.clone(),
        values: values.numbers(),
    });
    Ok(tensors.collect())
}

impl Core {
    /// Shows a published step to whoever watches.
    pub(super) fn show(&self, plan: &StepPlan, delivered: &[Delivered]) {
        let Some(Observer(observer)) = &self.observer else {
            return;
        };
        let row = |row| self.observed(row, delivered);
        let rows = plan.rows.iter().filter_map(row).collect();
        let times = self.times;
        observer.published(&ObservedStep { rows, times });
    }

    fn observed<'a>(
        &'a self,
        row: &'a RowPlan,
        delivered: &'a [Delivered],
    ) -> Option<ObservedRow<'a>> {
        let of_row = delivered.iter().find(|told| told.request == row.request);
        Some(ObservedRow {
            row,
            active: self.requests.iter().find(|a| a.id == row.request)?,
            told: of_row,
            composite: &self.composite,
            spec: self.model.decoder.state(),
        })
    }
}
