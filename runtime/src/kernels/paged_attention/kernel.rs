//! One step of `pawl::PagedAttention`, without ONNX Runtime.

#![allow(unsafe_code)]
#![expect(
    clippy::indexing_slicing,
    reason = "tiles are cut to extents checked at the entry"
)]

use super::super::batch::Batch;
use super::super::error::KernelError;
use super::super::gemm::{Extents as Product, Into, Left, Right, multiply, transpose};
use super::super::isa::{Isa, Level, versioned};
use super::super::math::exp;
use super::super::memory::Cells;
use super::super::parallel::Parallel;
use super::super::scratch::Scratch as Lent;
use super::plan::{Extents, Plan};
use super::project::{Norm, Rotation, project};

/// Most positions whose scores are computed together.
const POSITIONS: usize = 32;

/// Query vectors (tokens times heads of a group) that share one pass over the cache.
const VECTORS: usize = 64;

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

/// Tokens of one row that go through the cache together, for one key head.
#[derive(Clone, Copy, Debug)]
struct Tile {
    row: usize,
    /// First local token.
    first: usize,
    tokens: usize,
}

/// What a step keeps between calls, to allocate once.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    queries: Vec<f32>,
    tiles: Vec<Tile>,
    rows: Vec<usize>,
}

/// Runs a step. A row's outputs depend on that row alone.
pub(crate) fn run(
    step: &Step<'_>,
    scratch: &mut Scratch,
    threads: &dyn Parallel,
) -> Result<(), KernelError> {
    let (extents, level) = (step.extents, step.level);
    let tokens = step.qkv.len() / extents.packed();
    scratch
        .queries
        .resize(tokens * extents.heads * extents.dim, 0.0);
    scratch.rows.clear();
    scratch.tiles.clear();
    let width = (VECTORS / extents.group()).max(1);
    for row in 0..step.batch.rows() {
        let count = step.batch.range(row).len();
        scratch.rows.resize(scratch.rows.len() + count, row);
        scratch
            .tiles
            .extend((0..count).step_by(width).map(|first| Tile {
                row,
                first,
                tokens: width.min(count - first),
            }));
    }
    let queries = Cells::new(&mut scratch.queries);
    let rows = &scratch.rows;
    threads.run(tokens, extents.packed() * 4, &|token| {
        project(level, step, queries, rows[token], token);
    })?;
    let longest = (0..step.batch.rows())
        .map(|row| step.plan.past(row) + step.batch.range(row).len())
        .max()
        .unwrap_or(0);
    let tiles = &scratch.tiles;
    let cost = 2 * longest * extents.dim * width.min(tokens) * extents.group();
    threads.run(tiles.len() * extents.kv_heads, cost, &|item| {
        let (tile, head) = (tiles[item / extents.kv_heads], item % extents.kv_heads);
        let vectors = tile.tokens * extents.group();
        let len = POSITIONS * (vectors + extents.dim) + vectors * (extents.dim + 2);
        with_scratch(len, |scratch| {
            attend(level, step, queries, (tile, head), scratch)
        });
    })
}

versioned!(
    fn attend(
        step: &Step<'_>,
        queries: Cells<'_>,
        item: (Tile, usize),
        scratch: &mut [f32],
    ) => attend_body
);

/// Running softmax of the query vectors of a tile.
struct Softmax<'s> {
    /// `[vectors, POSITIONS]`: scores, then weights, of some positions.
    scores: &'s mut [f32],
    /// `[vectors, dim]`: weighted sum of the values so far.
    sums: &'s mut [f32],
    /// `[vectors]`: largest score so far.
    largest: &'s mut [f32],
    /// `[vectors]`: sum of the weights so far.
    totals: &'s mut [f32],
}

#[inline(always)]
fn attend_body<I: Isa>(
    isa: I,
    step: &Step<'_>,
    queries: Cells<'_>,
    (tile, head): (Tile, usize),
    scratch: &mut [f32],
) {
    let Extents { dim, .. } = step.extents;
    let group = step.extents.group();
    let vectors = tile.tokens * group;
    let (scores, rest) = scratch.split_at_mut(vectors * POSITIONS);
    let (keys, rest) = rest.split_at_mut(dim * POSITIONS);
    let (sums, rest) = rest.split_at_mut(vectors * dim);
    let (largest, totals) = rest.split_at_mut(vectors);
    sums.fill(0.0);
    largest.fill(f32::NEG_INFINITY);
    totals.fill(0.0);
    let mut softmax = Softmax {
        scores,
        sums,
        largest,
        totals,
    };
    let tokens = step.qkv.len() / step.extents.packed();
    let first = step.batch.range(tile.row).start + tile.first;
    let from = (head * tokens + first) * group * dim;
    // SAFETY: queries were written in the first half of the step and are only read now.
    let queries = unsafe { queries.part(from, vectors * dim) };
    let reach = step.plan.past(tile.row) + tile.first + 1;
    let end = reach + tile.tokens - 1;
    let mut position = 0;
    while position < end {
        let run = POSITIONS.min(step.plan.run(position)).min(end - position);
        let slot = step.plan.slot(tile.row, position);
        score(step, (slot, head, run), queries, keys, softmax.scores);
        weigh(isa, step, &mut softmax, (reach, position, run));
        gather(step, (slot, head, run), &mut softmax);
        position += run;
    }
    finish(step, (first, head), &softmax);
}

/// Scores of all vectors against `run` adjacent slots.
#[inline(always)]
fn score(
    step: &Step<'_>,
    (slot, head, run): (usize, usize, usize),
    queries: &[f32],
    packed: &mut [f32],
    scores: &mut [f32],
) {
    let Extents { dim, .. } = step.extents;
    let stride = step.extents.cached();
    // SAFETY: the cache was written in the first half of the step and is only read now.
    let keys = unsafe {
        step.keys
            .part(slot * stride + head * dim, (run - 1) * stride + dim)
    };
    transpose(step.level, (run, dim), (keys, stride), (packed, POSITIONS));
    multiply(
        step.level,
        Product {
            rows: queries.len() / dim,
            columns: run,
            inner: dim,
        },
        Left {
            data: queries,
            row: dim,
            column: 1,
        },
        Right {
            data: packed,
            row: POSITIONS,
        },
        Into {
            data: scores,
            row: POSITIONS,
            keep: 0.0,
        },
    );
}

/// Turns the scores of `run` positions from `position` on into weights. The first token of the tile sees
/// the positions below `reach`, each later token one more.
#[inline(always)]
fn weigh<I: Isa>(
    isa: I,
    step: &Step<'_>,
    softmax: &mut Softmax<'_>,
    (reach, position, run): (usize, usize, usize),
) {
    let (dim, group) = (step.extents.dim, step.extents.group());
    for (vector, scores) in softmax.scores.chunks_exact_mut(POSITIONS).enumerate() {
        let seen = (reach + vector / group).saturating_sub(position).min(run);
        let (scores, hidden) = scores[..run].split_at_mut(seen);
        hidden.fill(0.0);
        let before = softmax.largest[vector];
        let largest = scores
            .iter()
            .fold(before, |a, &b| if b > a { b } else { a });
        let mut total = 0.0;
        for score in &mut *scores {
            *score = exp(isa, *score - largest);
        }
        for &mut weight in scores {
            total += weight;
        }
        if largest > before {
            let shrink = exp(isa, before - largest);
            softmax.totals[vector] *= shrink;
            for sum in &mut softmax.sums[vector * dim..(vector + 1) * dim] {
                *sum *= shrink;
            }
            softmax.largest[vector] = largest;
        }
        softmax.totals[vector] += total;
    }
}

/// Adds the weighted values of `run` adjacent slots.
#[inline(always)]
fn gather(step: &Step<'_>, (slot, head, run): (usize, usize, usize), softmax: &mut Softmax<'_>) {
    let Extents { dim, .. } = step.extents;
    let stride = step.extents.cached();
    // SAFETY: the cache was written in the first half of the step and is only read now.
    let values = unsafe {
        step.values
            .part(slot * stride + head * dim, (run - 1) * stride + dim)
    };
    multiply(
        step.level,
        Product {
            rows: softmax.totals.len(),
            columns: dim,
            inner: run,
        },
        Left {
            data: softmax.scores,
            row: POSITIONS,
            column: 1,
        },
        Right {
            data: values,
            row: stride,
        },
        Into {
            data: softmax.sums,
            row: dim,
            keep: 1.0,
        },
    );
}

#[inline(always)]
fn finish(step: &Step<'_>, (first, head): (usize, usize), softmax: &Softmax<'_>) {
    let (dim, group) = (step.extents.dim, step.extents.group());
    for (vector, sums) in softmax.sums.chunks_exact(dim).enumerate() {
        let query_head = head * group + vector % group;
        let at = ((first + vector / group) * step.extents.heads + query_head) * dim;
        // SAFETY: this piece of work alone has these tokens of these heads.
        let output = unsafe { step.output.part_mut(at, dim) };
        let factor = 1.0 / softmax.totals[vector];
        for (output, &sum) in output.iter_mut().zip(sums) {
            *output = sum * factor;
        }
    }
}
