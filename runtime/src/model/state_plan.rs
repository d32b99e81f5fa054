//! How much state a model keeps, from its configuration alone.

use super::info::operator_name;
use super::plan::{Bytes, DEFAULT_BATCH, bank_rows, staged_rows};
use super::source::read_config;
use super::spec::transition_width;
use crate::error::LoadError;
use genai_config_schema::{GenaiConfig, StateGroup, StateKind, counted};
use serde::Serialize;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::Path;

/// Most checkpoint slots of a row.
const MOST_SLOTS: u32 = 8;

/// State of a model in bytes, with checkpoints of either form. It comes from a `genai_config.json` alone: neither graphs
/// nor weights need to be there, so that forms can be compared before anything is built.
///
/// ```
/// use pawl::StatePlan;
///
/// # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/plans/hybrid-64-layers.json");
/// let plan = StatePlan::read(file, 8, None)?;
/// let one = &plan.per_request;
/// assert!(one.update_checkpoints * 40 < one.state_checkpoints);
/// println!("{plan}");
/// # Ok::<(), pawl::LoadError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StatePlan {
    /// `model.type` of the configuration.
    pub model_type: String,
    /// Checkpoint slots of a row, W.
    pub window: u32,
    /// Requests that are resident at once, and rows that capture at once.
    pub requests: usize,
    /// Groups of fixed state.
    pub groups: Vec<StateGroupPlan>,
    /// The key/value cache, where a layer attends.
    pub cache: Option<CachePlan>,
    /// The share of one request, rounded up.
    pub per_request: StateBytes,
    /// All requests together.
    pub all_requests: StateBytes,
}

/// One group of fixed state, for one request.
///
/// ```
/// # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/plans/hybrid-64-layers.json");
/// let plan = pawl::StatePlan::read(file, 8, None)?;
/// let delta = &plan.groups[1];
/// assert_eq!((delta.kind, delta.layers), ("Gated DeltaNet", 48));
/// assert!(delta.update < delta.committed / 50);
/// # Ok::<(), pawl::LoadError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StateGroupPlan {
    /// `causal convolution`, `Gated DeltaNet` or `token history`.
    pub kind: &'static str,
    /// Layers that keep it.
    pub layers: usize,
    /// Extents of what one layer keeps.
    pub row_shape: Vec<u64>,
    /// Element type, such as `float32`.
    pub element_type: &'static str,
    /// Bytes of the state in all layers; a checkpoint slot of the form `state` has as many.
    pub committed: u64,
    /// Bytes of one transition in all layers: a checkpoint slot of the form `update`.
    pub update: u64,
}

/// A key/value cache.
///
/// ```
/// # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/plans/hybrid-64-layers.json");
/// let plan = pawl::StatePlan::read(file, 8, None)?;
/// let cache = plan.cache.as_ref().unwrap();
/// assert_eq!(cache.token, 16 * 2 * 4 * 256 * 2);
/// # Ok::<(), pawl::LoadError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CachePlan {
    /// Layers that attend.
    pub layers: usize,
    /// Element type, such as `float32`.
    pub element_type: &'static str,
    /// Bytes of one token in all layers.
    pub token: u64,
}

/// Bytes of fixed state.
///
/// ```
/// # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/plans/hybrid-64-layers.json");
/// let plan = pawl::StatePlan::read(file, 8, None)?;
/// assert_eq!(plan.all_requests.committed, 16 * plan.per_request.committed);
/// # Ok::<(), pawl::LoadError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StateBytes {
    /// The state itself, once.
    pub committed: u64,
    /// Both banks and the zero row, which all requests share.
    pub banks: u64,
    /// Of these the zero row: as large as the state of one request, however many there are.
    pub zero_row: u64,
    /// Staging of checkpoints of the form `state`.
    pub state_checkpoints: u64,
    /// Staging of checkpoints of the form `update`.
    pub update_checkpoints: u64,
}

impl StatePlan {
    /// Plans the state that the configuration `file` declares, with `window` checkpoint slots per row and
    /// `requests` requests at once; without a number, as many as the configuration says, else 16.
    ///
    /// # Errors
    /// The file cannot be read or is not valid, a group does not say its `row_shape` and `element_type`, the window is
    /// not from 1 to 8, or the sizes are beyond 2^64 bytes.
    ///
    /// ```
    /// let error = pawl::StatePlan::read("no/such.json", 8, None).unwrap_err();
    /// assert!(error.to_string().contains("no/such.json"));
    /// ```
    pub fn read(
        file: impl AsRef<Path>,
        window: u32,
        requests: Option<NonZeroUsize>,
    ) -> Result<Self, LoadError> {
        let file = file.as_ref();
        if !(1..=MOST_SLOTS).contains(&window) {
            return Err(LoadError::Option {
                name: "window",
                value: window.to_string(),
                expected: format!("from 1 to {MOST_SLOTS}"),
            });
        }
        let config = read_config(file)?;
        let batching = config.engine.dynamic_batching.as_ref();
        let configured = batching.and_then(|batching| batching.max_batch_size);
        let configured = configured.and_then(|size| usize::try_from(size).ok());
        let requests = requests.map(NonZeroUsize::get).or(configured);
        Self::of(&config, file, window, requests.unwrap_or(DEFAULT_BATCH))
    }

    fn of(
        config: &GenaiConfig,
        file: &Path,
        window: u32,
        requests: usize,
    ) -> Result<Self, LoadError> {
        let (mut groups, mut cache) = (Vec::new(), None);
        for (index, group) in config.model.decoder.state_groups.iter().enumerate() {
            let missing = |key: &str| LoadError::Unsupported {
                path: file.to_path_buf(),
                reason: format!(
                    "model.decoder.state_groups[{index}].{key}: needed to plan the state, and not there"
                ),
            };
            let element = group.element_type.ok_or_else(|| missing("element_type"))?;
            let planned = match group.kind {
                StateKind::PagedKv => {
                    cache_plan(config, group, element.size()).map(|plan| cache = Some(plan))
                }
                StateKind::Fixed | StateKind::FixedConv | StateKind::FixedRecurrent => {
                    if group.row_shape.is_empty() {
                        return Err(missing("row_shape"));
                    }
                    group_plan(group, element.size()).map(|plan| groups.push(plan))
                }
            };
            let key = format!("model.decoder.state_groups[{index}]: ");
            planned.ok_or_else(|| too_large(file, &key))?;
        }
        let (per_request, all_requests) =
            totals(&groups, window, requests).ok_or_else(|| too_large(file, ""))?;
        Ok(Self {
            model_type: config.model.kind.clone(),
            window,
            requests,
            groups,
            cache,
            per_request,
            all_requests,
        })
    }
}

/// `key` is where the state is declared, where one group alone is too large.
fn too_large(file: &Path, key: &str) -> LoadError {
    LoadError::Memory {
        reason: format!(
            "`{}`: {key}the state is larger than 2^64 bytes",
            file.display()
        ),
    }
}

fn product(mut extents: impl Iterator<Item = u64>) -> Option<u64> {
    extents.try_fold(1u64, u64::checked_mul)
}

fn group_plan(group: &StateGroup, size: u64) -> Option<StateGroupPlan> {
    let operator = group.operator?;
    let layers = u64::try_from(group.layer_ids.len()).ok()?;
    let row = product(group.row_shape.iter().copied())?;
    let width = transition_width(
        operator,
        &group.row_shape,
        (
            group.key_head_count.map(u64::from),
            group.decay.unwrap_or_default(),
        ),
    )?;
    Some(StateGroupPlan {
        kind: operator_name(operator),
        layers: group.layer_ids.len(),
        row_shape: group.row_shape.clone(),
        element_type: group.element_type?.as_str(),
        committed: product([layers, row, size].into_iter())?,
        update: product([layers, width, size].into_iter())?,
    })
}

fn cache_plan(config: &GenaiConfig, group: &StateGroup, size: u64) -> Option<CachePlan> {
    let decoder = &config.model.decoder;
    let (heads, width) = (decoder.num_key_value_heads, decoder.head_size);
    let layers = u64::try_from(group.layer_ids.len()).ok()?;
    Some(CachePlan {
        layers: group.layer_ids.len(),
        element_type: group.element_type?.as_str(),
        token: product([2, layers, heads.into(), width.into(), size].into_iter())?,
    })
}

/// The share of one request, and all of them. Rows that capture are as many as requests; in the update form there are some
/// for branches of drafts, where requests are few.
fn totals(
    groups: &[StateGroupPlan],
    window: u32,
    requests: usize,
) -> Option<(StateBytes, StateBytes)> {
    let sum = |part: fn(&StateGroupPlan) -> u64| {
        groups
            .iter()
            .try_fold(0u64, |sum, group| sum.checked_add(part(group)))
    };
    let (committed, update) = (sum(|group| group.committed)?, sum(|group| group.update)?);
    let (rows, window) = (u64::try_from(requests).ok()?, u64::from(window));
    let staged = staged_rows(requests, committed, update.checked_mul(window)?);
    let staged = u64::try_from(staged).ok()?;
    let all = StateBytes {
        committed: committed.checked_mul(rows)?,
        banks: committed.checked_mul(u64::try_from(bank_rows(requests)).ok()?)?,
        zero_row: committed,
        state_checkpoints: product([committed, window, rows].into_iter())?,
        update_checkpoints: product([update, window, staged].into_iter())?,
    };
    let one = StateBytes {
        committed,
        banks: all.banks.div_ceil(rows.max(1)),
        zero_row: all.zero_row.div_ceil(rows.max(1)),
        state_checkpoints: committed.checked_mul(window)?,
        update_checkpoints: all.update_checkpoints.div_ceil(rows.max(1)),
    };
    Some((one, all))
}

impl StateBytes {
    /// Banks and staging beyond the state itself, as a multiple of it, with checkpoints of the form `state`.
    ///
    /// ```
    /// # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/plans/hybrid-64-layers.json");
    /// let plan = pawl::StatePlan::read(file, 8, None)?;
    /// assert!(plan.per_request.state_overhead() > 9.0);
    /// # Ok::<(), pawl::LoadError>(())
    /// ```
    #[must_use]
    pub fn state_overhead(&self) -> f64 {
        self.overhead(self.state_checkpoints)
    }

    /// Banks and staging beyond the state itself, as a multiple of it, with checkpoints of the form `update`.
    ///
    /// ```
    /// # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/plans/hybrid-64-layers.json");
    /// let plan = pawl::StatePlan::read(file, 8, None)?;
    /// assert!(plan.per_request.update_overhead() < 2.0);
    /// # Ok::<(), pawl::LoadError>(())
    /// ```
    #[must_use]
    pub fn update_overhead(&self) -> f64 {
        self.overhead(self.update_checkpoints)
    }

    fn overhead(&self, staging: u64) -> f64 {
        let beyond = self
            .banks
            .saturating_add(staging)
            .saturating_sub(self.committed);
        ratio(beyond, self.committed)
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

impl StatePlan {
    /// Lines of the table: what, bytes of one request, bytes of all.
    fn lines(&self) -> Vec<(String, u64, u64)> {
        let requests = u64::try_from(self.requests).unwrap_or(u64::MAX);
        let group = |group: &StateGroupPlan| {
            let all = group.committed.saturating_mul(requests);
            (group.to_string(), group.committed, all)
        };
        let (one, all, window) = (&self.per_request, &self.all_requests, self.window);
        let mut lines: Vec<_> = self.groups.iter().map(group).collect();
        lines.extend([
            ("committed state".to_owned(), one.committed, all.committed),
            (
                "two banks and the zero row".to_owned(),
                one.banks,
                all.banks,
            ),
            (
                format!("checkpoints state:{window}"),
                one.state_checkpoints,
                all.state_checkpoints,
            ),
            (
                format!("checkpoints update:{window}"),
                one.update_checkpoints,
                all.update_checkpoints,
            ),
        ]);
        lines
    }
}

impl fmt::Display for StatePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.lines();
        let longest = lines.iter().map(|(what, ..)| what.chars().count()).max();
        let width = longest.unwrap_or(0).max(self.model_type.chars().count());
        let together = counted(self.requests, "request");
        writeln!(
            f,
            "{:width$}  {:>12}  {together:>14}",
            self.model_type, "one request"
        )?;
        for (what, one, all) in lines {
            let (one, all) = (Bytes(one).to_string(), Bytes(all).to_string());
            writeln!(f, "{what:width$}  {one:>12}  {all:>14}")?;
        }
        let (one, window) = (&self.per_request, self.window);
        write!(
            f,
            "update:{window} takes {:.1} % of state:{window}; beyond the committed state, banks and staging take {:.2} times \
             as much with update:{window}, {:.2} times with state:{window}; {:.2} of it is the zero row, which does not grow \
             with the requests",
            ratio(one.update_checkpoints, one.state_checkpoints) * 100.0,
            one.update_overhead(),
            one.state_overhead(),
            ratio(one.zero_row, one.committed),
        )?;
        match &self.cache {
            Some(cache) => write!(f, "\n{cache}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for StateGroupPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            layers,
            row_shape,
            element_type,
            ..
        } = self;
        let layers = counted(layers, "layer");
        write!(f, "{kind}, {layers} of {element_type} {row_shape:?}")
    }
}

impl fmt::Display for CachePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layers = counted(self.layers, "layer");
        let (element, token) = (self.element_type, Bytes(self.token));
        write!(
            f,
            "key/value cache, {layers} of {element}: {token} per token"
        )
    }
}

#[cfg(test)]
#[path = "state_plan_tests.rs"]
mod tests;
