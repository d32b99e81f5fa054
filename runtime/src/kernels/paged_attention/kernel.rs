//! One step of `pawl::PagedAttention`, without ONNX Runtime.

#![expect(
    clippy::indexing_slicing,
    reason = "tiles are cut to extents checked at the entry"
)]

use super::super::batch::Batch;
use super::super::error::KernelError;
use super::super::isa::Level;
use super::super::memory::Cells;
use super::super::parallel::Parallel;
use super::super::scratch::Scratch as Lent;
use super::attend::{Item, Merge, Partials, attend, merge};
use super::plan::{Extents, Plan};
use super::project::{Norm, Rotation, project};

/// Query vectors (tokens times heads of a group) of a long row that share one pass over the cache.
const VECTORS: usize = 64;

/// Longest row that goes through the cache all heads at once, position by position as the cache lies
/// in memory, cut into parts that different threads can take. A token of such a row has the same bits
/// however many tokens run with it: what verifies drafts computes exactly what decoding computes.
const SHORT: usize = 16;

/// Positions of a part of a short row. The cuts lie at the same positions whatever the row's length.
const PART: usize = 128;

/// One step over a packed batch. Every tensor has the shape that `extents` and `batch` imply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step<'a> {
    /// Instructions to use.
    pub(crate) level: Level,
    /// Heads and cache.
    pub(crate) extents: Extents,
    /// `[tokens, packed]`: query | key | value.
    pub(crate) qkv: &'a [f32],
    /// Rows.
    pub(crate) batch: &'a Batch,
    /// Slots.
    pub(crate) plan: &'a Plan,
    /// Angles, for models that rotate.
    pub(crate) rotation: Option<Rotation<'a>>,
    /// Norm of each query head.
    pub(crate) query_norm: Option<Norm<'a>>,
    /// Norm of each key head.
    pub(crate) key_norm: Option<Norm<'a>>,
    /// What scores are multiplied with.
    pub(crate) scale: f32,
    /// `[blocks, block_size, kv_heads, dim]`.
    pub(crate) keys: Cells<'a>,
    /// `[blocks, block_size, kv_heads, dim]`.
    pub(crate) values: Cells<'a>,
    /// `[tokens, heads * dim]`.
    pub(crate) output: Cells<'a>,
}

/// What a step keeps between calls, to allocate once.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// `[kv_heads, tokens, group, dim]`.
    queries: Vec<f32>,
    /// Row of each token.
    rows: Vec<usize>,
    items: Vec<Item>,
    merges: Vec<Merge>,
    /// Sums, totals and largest scores of parts.
    partials: Vec<f32>,
}

impl Scratch {
    fn plan(&mut self, step: &Step<'_>) {
        self.rows.clear();
        self.items.clear();
        self.merges.clear();
        let mut partials = 0;
        for row in 0..step.batch.rows() {
            let tokens = step.batch.range(row).len();
            self.rows.resize(self.rows.len() + tokens, row);
            if tokens <= SHORT {
                self.plan_short(step, row, &mut partials);
            } else {
                self.plan_long(step, row);
            }
        }
        let tokens = self.rows.len();
        self.queries
            .resize(tokens * step.extents.heads * step.extents.dim, 0.0);
        self.partials.resize(partials, 0.0);
    }

    fn plan_short(&mut self, step: &Step<'_>, row: usize, partials: &mut usize) {
        let tokens = step.batch.range(row).len();
        let end = step.plan.past(row) + tokens;
        let parts = end.div_ceil(PART);
        let size = Partials::size(step.extents, tokens);
        if parts > 1 {
            self.merges.push(Merge {
                row,
                first: *partials,
                parts,
            });
        }
        for start in (0..end).step_by(PART) {
            let partial = (parts > 1).then_some(*partials);
            *partials += if parts > 1 { size } else { 0 };
            let positions = (start, end.min(start + PART));
            let heads = (0, step.extents.kv_heads);
            self.items.push(Item {
                row,
                first: 0,
                tokens,
                heads,
                positions,
                alone: true,
                partial,
            });
        }
    }

    fn plan_long(&mut self, step: &Step<'_>, row: usize) {
        let count = step.batch.range(row).len();
        let width = (VECTORS / step.extents.group()).max(1);
        for first in (0..count).step_by(width) {
            let tokens = width.min(count - first);
            let positions = (0, step.plan.past(row) + first + tokens);
            for head in 0..step.extents.kv_heads {
                let heads = (head, head + 1);
                self.items.push(Item {
                    row,
                    first,
                    tokens,
                    heads,
                    positions,
                    alone: false,
                    partial: None,
                });
            }
        }
    }
}

/// Runs a step. A row's outputs depend on that row alone.
pub(crate) fn run(
    step: &Step<'_>,
    scratch: &mut Scratch,
    threads: &dyn Parallel,
) -> Result<(), KernelError> {
    scratch.plan(step);
    let (extents, level) = (step.extents, step.level);
    let queries = Cells::new(&mut scratch.queries);
    let partials = Cells::new(&mut scratch.partials);
    let (rows, items, merges) = (&scratch.rows, &scratch.items, &scratch.merges);
    threads.run(rows.len(), extents.packed() * 4, &|token| {
        project(level, step, queries, rows[token], token);
    })?;
    let cost = items
        .iter()
        .map(|item| item.cost(extents))
        .max()
        .unwrap_or(0);
    threads.run(items.len(), cost, &|item| {
        let mut lent = Lent::lend(items[item].scratch(extents));
        attend(level, step, (queries, partials), items[item], lent.floats());
    })?;
    let tokens = merges.iter().map(|merge| step.batch.range(merge.row).len());
    let cost = tokens.max().unwrap_or(0) * extents.heads * extents.dim * 8;
    threads.run(merges.len(), cost, &|index| {
        merge(level, step, partials, merges[index]);
    })
}
