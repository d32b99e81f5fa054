//! How much memory a model will take, before anything is allocated.

use super::available::available_memory;
use super::contract::{Contract, GraphContract};
use super::options::LoadOptions;
use super::spec::PagedSpec;
use super::tensor_spec::DataType;
use crate::error::LoadError;
use crate::limits::CACHE_BYTES;
use genai_config_schema::{CheckpointForm, GenaiConfig, counted};
use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Requests that run at once where nobody says.
pub(super) const DEFAULT_BATCH: usize = 16;
/// Tokens of one step where the configuration does not say.
const DEFAULT_SCHEDULED_TOKENS: usize = 2048;

/// Rows of a step that there is always room for where it costs little, so that few requests can branch.
pub(super) const TREE_ROWS: usize = 8;

/// Bytes of staging that are little for any model.
const LITTLE_STAGING: u64 = 16 << 20;

/// Bytes of a float32 element.
const FLOAT: u64 = 4;

/// Sizes that the pools and the scheduler keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Requests that run at once: slots of fixed state, and rows of a step without branches.
    pub(crate) slots: usize,
    /// Rows of one step, branches included: the staging of checkpoints is as wide.
    pub(crate) checkpoint_rows: usize,
    /// Most tokens of one step.
    pub(crate) scheduled_tokens: usize,
    /// Longest sequence, tokens.
    pub(crate) sequence: usize,
    /// Key/value blocks of each layer, decoder and head alike.
    pub(crate) kv_blocks: usize,
    /// Tokens of a block.
    pub(crate) block_size: usize,
    /// Rows that get logits in one step.
    pub(crate) logits_rows: usize,
}

impl Limits {
    /// Settles every size from the options, the configuration and the state.
    pub(crate) fn resolve(
        config: &GenaiConfig,
        contract: &Contract,
        options: &LoadOptions,
    ) -> Result<Self, LoadError> {
        let batching = config.engine.dynamic_batching.clone().unwrap_or_default();
        let size = |number: Option<u32>| number.and_then(|n| usize::try_from(n).ok());
        let chosen = |option: Option<NonZeroUsize>, file: Option<u32>, default: usize| {
            option
                .map(NonZeroUsize::get)
                .or(size(file))
                .unwrap_or(default)
        };
        let slots = chosen(
            options.max_batch_size,
            batching.max_batch_size,
            DEFAULT_BATCH,
        );
        let scheduled_tokens = chosen(
            None,
            batching.max_scheduled_tokens,
            DEFAULT_SCHEDULED_TOKENS,
        );
        let context = size(Some(config.model.context_length)).unwrap_or(usize::MAX);
        let sequence = options.max_sequence.map_or(context, NonZeroUsize::get);
        if sequence > context {
            return Err(LoadError::Option {
                name: "max_sequence",
                value: sequence.to_string(),
                expected: format!("at most {context}, the model's context_length"),
            });
        }
        let state = &contract.decoder.state;
        let block_size = state.paged.as_ref().map_or(1, |paged| paged.block_size);
        let enough = sequence.div_ceil(block_size.max(1)).saturating_mul(slots);
        let file_blocks = size(batching.num_blocks);
        let kv_blocks = options
            .kv_blocks
            .map(NonZeroUsize::get)
            .or(file_blocks)
            .unwrap_or_else(|| enough.min(affordable(contract, CACHE_BYTES)).max(1));
        let captured = state
            .fixed
            .iter()
            .filter_map(|f| Some(f.checkpoints.as_ref()?.count))
            .max();
        let rows = step_rows(&contract.decoder, slots);
        Ok(Self {
            slots,
            checkpoint_rows: rows,
            scheduled_tokens,
            sequence,
            kv_blocks,
            block_size,
            logits_rows: rows.saturating_mul(captured.unwrap_or(1).max(1)),
        })
    }
}

/// Rows of one step. A tree of drafts takes several of them for one request: there is room for a few where staging is
/// small, in transitions. Where each slot of it is a full state, or nothing is captured, it is not made wider.
fn step_rows(graph: &GraphContract, slots: usize) -> usize {
    let fixed = &graph.state.fixed;
    let update = fixed.iter().all(|fixed| {
        let checkpoints = fixed.checkpoints.as_ref();
        checkpoints.is_some_and(|spec| spec.form == CheckpointForm::Update)
    });
    if !update {
        return slots;
    }
    let tensors = || fixed.iter().zip(element_sizes(graph));
    let committed = sum(tensors().map(|(fixed, size)| product(&fixed.row_shape, size)));
    let row = sum(tensors().map(|(fixed, size)| {
        let checkpoints = fixed.checkpoints.as_ref()?;
        product(&[checkpoints.count, checkpoints.width], size)
    }));
    staged_rows(slots, committed.unwrap_or(0), row.unwrap_or(u64::MAX))
}

/// Rows that are staged in transitions: one for each request, and where requests are few, more for branches of drafts. The
/// staging of these is no larger than the state of one request, or little, so that two banks and staging stay within
/// three times the states; `row` is what one row stages.
pub(super) fn staged_rows(slots: usize, committed: u64, row: u64) -> usize {
    let most = committed.max(LITTLE_STAGING) / row.max(1);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    slots.max(TREE_ROWS.min(most))
}

/// Blocks that fit so many bytes.
fn affordable(contract: &Contract, bytes: u64) -> usize {
    let per_block = caches(contract)
        .map(|(paged, size)| cache_bytes(paged, size, 1))
        .try_fold(0u64, |sum, bytes| sum.checked_add(bytes?))
        .unwrap_or(u64::MAX);
    usize::try_from(bytes / per_block.max(1)).unwrap_or(usize::MAX)
}

/// Every key/value cache, and the bytes of its elements.
fn caches(contract: &Contract) -> impl Iterator<Item = (&PagedSpec, u64)> {
    [Some(&contract.decoder), contract.head.as_ref()]
        .into_iter()
        .flatten()
        .filter_map(|graph| Some((graph.state.paged.as_ref()?, cache_size(graph))))
}

/// Bytes of one element of a graph's cache.
fn cache_size(graph: &GraphContract) -> u64 {
    graph.types.cache.map_or(FLOAT, element_size)
}

/// Bytes of one element of each fixed tensor.
fn element_sizes(graph: &GraphContract) -> impl Iterator<Item = u64> + Clone {
    let types = graph.types.fixed.iter().map(|kind| element_size(*kind));
    types.chain(std::iter::repeat(FLOAT))
}

fn element_size(kind: DataType) -> u64 {
    kind.bytes(1).unwrap_or(FLOAT)
}

/// Rows of a bank tensor: both banks and the zero row.
pub(super) fn bank_rows(slots: usize) -> usize {
    slots.saturating_mul(2).saturating_add(1)
}

/// Memory of a loaded model, in bytes per purpose. Its `Display` is a table.
///
/// Counted is everything that lives as long as the model: weights as they lie in the files (the runtime maps them and
/// may prepare a second copy of those that it multiplies with), both banks of fixed state, key/value blocks, and
/// the staging of a step. What ONNX Runtime needs between the operators of a step is not: it depends on the graph.
///
/// ```no_run
/// let found = pawl::inspect("demo/tiny-python", &pawl::LoadOptions::new())?;
/// println!("{}", found.memory);
/// # Ok::<(), pawl::LoadError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct MemoryPlan {
    entries: Vec<PlanEntry>,
    kv_blocks: usize,
    block_size: usize,
    slots: usize,
}

/// One purpose of a [`MemoryPlan`].
///
/// ```no_run
/// let found = pawl::inspect("demo/tiny-python", &pawl::LoadOptions::new())?;
/// let allocated = found.memory.entries().iter().filter(|entry| entry.allocated);
/// println!("{} bytes are allocated", allocated.map(|entry| entry.bytes).sum::<u64>());
/// # Ok::<(), pawl::LoadError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct PlanEntry {
    /// What the memory is for.
    pub purpose: String,
    /// Bytes.
    pub bytes: u64,
    /// Whether it is allocated; otherwise it is mapped from a file.
    pub allocated: bool,
}

impl MemoryPlan {
    /// Settles every size and plans. A cache whose size nobody chose takes at most half of what is available, and what
    /// the memory limit leaves.
    ///
    /// # Errors
    /// A plan over the memory limit; the message holds the plan.
    pub(crate) fn settle(
        config: &GenaiConfig,
        contract: &Contract,
        options: &LoadOptions,
        graphs: &[(PathBuf, u64)],
    ) -> Result<(Limits, Self), LoadError> {
        let available = available_memory();
        let mut limits = Limits::resolve(config, contract, options)?;
        let batching = config.engine.dynamic_batching.as_ref();
        let chosen = batching.is_some_and(|batching| batching.num_blocks.is_some());
        if options.kv_blocks.is_none() && !chosen {
            let without = Limits {
                kv_blocks: 0,
                ..limits
            };
            let rest = Self::new(config, contract, &without, graphs)?.total();
            let limit = options.memory_limit.map(|limit| limit.saturating_sub(rest));
            let room = available.map_or(u64::MAX, |bytes| bytes / 2);
            let room = room.min(limit.unwrap_or(u64::MAX));
            limits.kv_blocks = limits.kv_blocks.min(affordable(contract, room)).max(1);
        }
        let plan = Self::new(config, contract, &limits, graphs)?;
        plan.refuse_over(options.memory_limit)?;
        Ok((limits, plan))
    }

    /// Plans a model. `graphs` are the graph files with their sizes in bytes.
    pub(crate) fn new(
        config: &GenaiConfig,
        contract: &Contract,
        limits: &Limits,
        graphs: &[(PathBuf, u64)],
    ) -> Result<Self, LoadError> {
        let mut plan = Self {
            entries: Vec::new(),
            kv_blocks: limits.kv_blocks,
            block_size: limits.block_size,
            slots: limits.slots,
        };
        for (path, bytes) in graphs.iter().chain(&contract.data_files) {
            let name = path
                .file_name()
                .unwrap_or(path.as_os_str())
                .to_string_lossy();
            plan.add(format!("weights, `{name}`"), Some(*bytes), false)?;
        }
        plan.add_fixed(&contract.decoder, limits)?;
        plan.add_cache("key/value cache", &contract.decoder, limits)?;
        if let Some(head) = &contract.head {
            plan.add_cache("key/value cache of the head", head, limits)?;
        }
        let rows = |rows: usize, columns: usize| product(&[rows, columns], FLOAT);
        let vocab = usize::try_from(config.model.vocab_size).unwrap_or(usize::MAX);
        plan.add(
            "logits staging".to_owned(),
            rows(limits.logits_rows, vocab),
            true,
        )?;
        if contract.head.is_some() {
            let width = contract.decoder.signature.hidden_size;
            plan.add(
                "hidden rows staging".to_owned(),
                rows(limits.scheduled_tokens, width),
                true,
            )?;
        }
        Ok(plan)
    }

    fn add_fixed(&mut self, graph: &GraphContract, limits: &Limits) -> Result<(), LoadError> {
        let tensors = || graph.state.fixed.iter().zip(element_sizes(graph));
        if graph.state.fixed.is_empty() {
            return Ok(());
        }
        let rows = bank_rows(limits.slots);
        let banks = sum(tensors().map(|(fixed, size)| {
            product(&fixed.row_shape, size)?.checked_mul(u64::try_from(rows).ok()?)
        }));
        let slots = limits.slots;
        self.add(
            format!(
                "fixed state, 2 banks of {} and a zero row",
                counted(slots, "slot")
            ),
            banks,
            true,
        )?;
        let series =
            tensors().filter_map(|(fixed, size)| Some((fixed.checkpoints.as_ref()?, size)));
        let bytes = sum(series.clone().map(|(checkpoints, size)| {
            product(
                &[checkpoints.count, limits.checkpoint_rows, checkpoints.width],
                size,
            )
        }));
        if series.count() > 0 {
            let rows = limits.checkpoint_rows;
            let branches = if rows > slots {
                ", some for branches of drafts"
            } else {
                ""
            };
            let purpose = format!("checkpoint staging, {}{branches}", counted(rows, "row"));
            self.add(purpose, bytes, true)?;
        }
        Ok(())
    }

    fn add_cache(
        &mut self,
        purpose: &str,
        graph: &GraphContract,
        limits: &Limits,
    ) -> Result<(), LoadError> {
        let Some(paged) = &graph.state.paged else {
            return Ok(());
        };
        let blocks = counted(limits.kv_blocks, "block");
        let tokens = counted(limits.block_size, "token");
        self.add(
            format!("{purpose}, {blocks} of {tokens}"),
            cache_bytes(paged, cache_size(graph), limits.kv_blocks),
            true,
        )
    }

    fn add(
        &mut self,
        purpose: String,
        bytes: Option<u64>,
        allocated: bool,
    ) -> Result<(), LoadError> {
        let bytes = bytes.ok_or_else(|| LoadError::Memory {
            reason: format!("{purpose}: larger than the address space"),
        })?;
        self.entries.push(PlanEntry {
            purpose,
            bytes,
            allocated,
        });
        Ok(())
    }

    /// Refuses a plan for the host that cannot be served with the memory that is available: now, not in the middle of a
    /// step.
    pub(crate) fn require_fit(&self) -> Result<(), LoadError> {
        self.refuse_impossible(available_memory())
    }

    fn refuse_over(&self, limit: Option<u64>) -> Result<(), LoadError> {
        match limit {
            Some(limit) if self.total() > limit => Err(LoadError::Memory {
                reason: format!(
                    "the model needs {}, more than the memory limit of {}; raise it{}\n{self}",
                    Bytes(self.total()),
                    Bytes(limit),
                    self.lowered(", or lower"),
                ),
            }),
            _ => Ok(()),
        }
    }

    fn refuse_impossible(&self, available: Option<u64>) -> Result<(), LoadError> {
        let allocated = self.entries.iter().filter(|entry| entry.allocated);
        let needed = sum(allocated.map(|entry| Some(entry.bytes)));
        match available {
            Some(available) if needed.is_none_or(|needed| needed > available) => {
                Err(LoadError::Memory {
                    reason: format!(
                        "the model does not fit the {} of memory that are available{}\n{self}",
                        Bytes(available),
                        self.lowered("; lower"),
                    ),
                })
            }
            _ => Ok(()),
        }
    }

    /// Which options take less memory where they are lower than now; nothing where none is left.
    fn lowered(&self, before: &str) -> String {
        let options = [
            ("max_batch_size", self.slots),
            ("kv_blocks", self.kv_blocks),
        ];
        let lower = options.iter().filter(|(_, now)| *now > 1);
        let lower: Vec<_> = lower
            .map(|(name, now)| format!("{name} (now {now})"))
            .collect();
        match lower.is_empty() {
            true => String::new(),
            false => format!("{before} {}", lower.join(" or ")),
        }
    }

    /// What the memory is for, in the order of allocation.
    ///
    /// ```no_run
    /// let found = pawl::inspect("demo/tiny-python", &pawl::LoadOptions::new())?;
    /// for entry in found.memory.entries() {
    ///     println!("{}: {} bytes", entry.purpose, entry.bytes);
    /// }
    /// # Ok::<(), pawl::LoadError>(())
    /// ```
    #[must_use]
    pub fn entries(&self) -> &[PlanEntry] {
        &self.entries
    }

    /// All of it, in bytes.
    ///
    /// ```no_run
    /// let found = pawl::inspect("demo/tiny-python", &pawl::LoadOptions::new())?;
    /// assert!(found.memory.total() >= found.memory.entries()[0].bytes);
    /// # Ok::<(), pawl::LoadError>(())
    /// ```
    #[must_use]
    pub fn total(&self) -> u64 {
        self.entries
            .iter()
            .fold(0, |sum, entry| sum.saturating_add(entry.bytes))
    }

    /// Key/value blocks of each layer.
    ///
    /// ```no_run
    /// let found = pawl::inspect("demo/tiny-python", &pawl::LoadOptions::new())?;
    /// let tokens = found.memory.kv_blocks() * found.memory.block_size();
    /// println!("the cache holds {tokens} tokens");
    /// # Ok::<(), pawl::LoadError>(())
    /// ```
    #[must_use]
    pub fn kv_blocks(&self) -> usize {
        self.kv_blocks
    }

    /// Tokens of one key/value block.
    ///
    /// ```no_run
    /// let found = pawl::inspect("demo/tiny-python", &pawl::LoadOptions::new())?;
    /// assert!(found.memory.block_size() > 0);
    /// # Ok::<(), pawl::LoadError>(())
    /// ```
    #[must_use]
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// Requests that run at once.
    ///
    /// ```no_run
    /// let found = pawl::inspect("demo/tiny-python", &pawl::LoadOptions::new())?;
    /// assert_eq!(found.memory.slots(), found.info.limits.requests);
    /// # Ok::<(), pawl::LoadError>(())
    /// ```
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest = self
            .entries
            .iter()
            .map(|entry| entry.purpose.chars().count())
            .max();
        let width = longest.unwrap_or(0).max("total".len());
        for entry in &self.entries {
            writeln!(
                f,
                "{:width$}  {:>12}",
                entry.purpose,
                Bytes(entry.bytes).to_string()
            )?;
        }
        write!(
            f,
            "{:width$}  {:>12}",
            "total",
            Bytes(self.total()).to_string()
        )
    }
}

/// A size for people.
pub(super) struct Bytes(pub(super) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        #[expect(
            clippy::cast_precision_loss,
            reason = "shown with one digit after the point"
        )]
        let mut size = self.0 as f64 / 1024.0;
        let mut unit = 0;
        while size >= 1024.0 && unit + 1 < UNITS.len() {
            size /= 1024.0;
            unit += 1;
        }
        write!(f, "{size:.1} {}", UNITS.get(unit).unwrap_or(&"TiB"))
    }
}

fn product(extents: &[usize], size: u64) -> Option<u64> {
    extents.iter().try_fold(size, |bytes, extent| {
        bytes.checked_mul(u64::try_from(*extent).ok()?)
    })
}

fn sum(mut bytes: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    bytes.try_fold(0u64, |sum, bytes| sum.checked_add(bytes?))
}

fn cache_bytes(paged: &PagedSpec, size: u64, blocks: usize) -> Option<u64> {
    let tensors = paged.layers.len().checked_mul(2)?;
    product(
        &[
            tensors,
            blocks,
            paged.block_size,
            paged.kv_heads,
            paged.head_dim,
        ],
        size,
    )
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
