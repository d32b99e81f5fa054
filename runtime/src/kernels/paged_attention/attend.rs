//! The second half of a step: query vectors against the cache.
//!
//! A softmax over many positions is taken a few at a time: sums are kept relative to the largest score
//! so far and shrink when a larger one comes.

#![allow(unsafe_code)]
#![expect(
    clippy::indexing_slicing,
    reason = "extents are those of an item, checked at the entry"
)]

use super::super::gemm::{Extents as Product, Into, Left, Right, multiply, transpose};
use super::super::isa::{Isa, versioned};
use super::super::math::exp;
use super::super::memory::Cells;
use super::kernel::Step;
use super::plan::Extents;

/// Most positions whose scores are computed together.
const POSITIONS: usize = 32;

/// Query vectors of a long row from which on transposing the keys pays.
const MANY: usize = 16;

/// Tokens of one row that go through some positions together, for some key heads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) row: usize,
    /// First local token.
    pub(super) first: usize,
    pub(super) tokens: usize,
    /// First key head, and one past the last.
    pub(super) heads: (usize, usize),
    /// First position, and one past the last.
    pub(super) positions: (usize, usize),
    /// Whether each query vector is scored by itself however many there are, so that a token's bits do not depend on
    /// those that run with it.
    pub(super) alone: bool,
    /// Where the result goes, when it is one of several parts.
    pub(super) partial: Option<usize>,
}

impl Item {
    fn vectors(self, extents: Extents) -> usize {
        self.tokens * extents.group()
    }

    /// Multiply-adds, roughly.
    pub(super) fn cost(self, extents: Extents) -> usize {
        let positions = self.positions.1 - self.positions.0;
        let vectors = self.vectors(extents) * (self.heads.1 - self.heads.0);
        2 * positions * extents.dim * vectors
    }

    /// Floats of working memory.
    pub(super) fn scratch(self, extents: Extents) -> usize {
        let (vectors, heads) = (self.vectors(extents), self.heads.1 - self.heads.0);
        POSITIONS * (vectors + extents.dim) + heads * vectors * (extents.dim + 2)
    }
}

/// A row whose positions were cut into parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Merge {
    pub(super) row: usize,
    /// Where the first part is.
    pub(super) first: usize,
    pub(super) parts: usize,
}

/// The result of a part: for each key head and query vector the sum of weighted values, then all sums
/// of weights, then all largest scores.
#[derive(Debug)]
pub(super) struct Partials<'s> {
    /// `[heads, vectors, dim]`.
    sums: &'s mut [f32],
    /// `[heads, vectors]`.
    totals: &'s mut [f32],
    /// `[heads, vectors]`.
    largest: &'s mut [f32],
}

impl<'s> Partials<'s> {
    /// Floats for all heads of a row of so many tokens.
    pub(super) const fn size(extents: Extents, tokens: usize) -> usize {
        tokens * extents.heads * (extents.dim + 2)
    }

    fn new(floats: &'s mut [f32], dim: usize) -> Self {
        let vectors = floats.len() / (dim + 2);
        let (sums, rest) = floats.split_at_mut(vectors * dim);
        let (totals, largest) = rest.split_at_mut(vectors);
        Self {
            sums,
            totals,
            largest,
        }
    }

    fn clear(&mut self) {
        self.sums.fill(0.0);
        self.totals.fill(0.0);
        self.largest.fill(f32::NEG_INFINITY);
    }
}

versioned!(
    /// Runs one item: `memory` is the queries and the partial results of the step.
    pub(super) fn attend(
        step: &Step<'_>,
        memory: (Cells<'_>, Cells<'_>),
        item: Item,
        scratch: &mut [f32],
    ) => attend_body
);

/// Adjacent slots of the cache that are seen together.
#[derive(Clone, Copy)]
struct Run {
    /// First slot.
    slot: usize,
    /// Position of the first slot.
    position: usize,
    len: usize,
}

#[inline(always)]
fn attend_body<I: Isa>(
    isa: I,
    step: &Step<'_>,
    (queries, partials): (Cells<'_>, Cells<'_>),
    item: Item,
    scratch: &mut [f32],
) {
    let (dim, group) = (step.extents.dim, step.extents.group());
    let vectors = item.vectors(step.extents);
    let (scores, rest) = scratch.split_at_mut(vectors * POSITIONS);
    let (turned, floats) = rest.split_at_mut(dim * POSITIONS);
    let floats = match item.partial {
        // SAFETY: this piece of work alone has this part.
        Some(at) => unsafe { partials.part_mut(at, floats.len()) },
        None => floats,
    };
    let mut result = Partials::new(floats, dim);
    result.clear();
    let tokens = step.qkv.len() / step.extents.packed();
    let first = step.batch.range(item.row).start + item.first;
    let reach = step.plan.past(item.row) + item.first + 1;
    let (mut position, end) = item.positions;
    while position < end {
        let len = POSITIONS.min(step.plan.run(position)).min(end - position);
        let run = Run {
            slot: step.plan.slot(item.row, position),
            position,
            len,
        };
        for head in item.heads.0..item.heads.1 {
            let from = (head * tokens + first) * group * dim;
            // SAFETY: queries were written in the first half of the step and are only read now.
            let queries = unsafe { queries.part(from, vectors * dim) };
            let together = !item.alone && vectors >= MANY;
            let turned = together.then_some(&mut *turned);
            score(isa, step, (run, head), (queries, turned), scores);
            let of = (head - item.heads.0) * vectors;
            let mut softmax = Softmax {
                scores,
                sums: &mut result.sums[of * dim..(of + vectors) * dim],
                totals: &mut result.totals[of..of + vectors],
                largest: &mut result.largest[of..of + vectors],
            };
            softmax.weigh(isa, run, (reach, group));
            softmax.gather(step, (run, head));
        }
        position += len;
    }
    if item.partial.is_none() {
        finish(step, item, &result);
    }
}

/// Scores of all vectors of a head against a run, rows of [`POSITIONS`]: together where there is memory for the
/// transposed keys.
#[inline(always)]
fn score<I: Isa>(
    isa: I,
    step: &Step<'_>,
    (run, head): (Run, usize),
    (queries, turned): (&[f32], Option<&mut [f32]>),
    scores: &mut [f32],
) {
    let (dim, row) = (step.extents.dim, step.extents.cached());
    let vectors = queries.len() / dim;
    // SAFETY: the cache was written in the first half of the step and is only read now.
    let keys = unsafe {
        step.keys
            .part(run.slot * row + head * dim, (run.len - 1) * row + dim)
    };
    let Some(turned) = turned else {
        return score_alone(isa, (queries, dim), (keys, row), (scores, run.len));
    };
    transpose(
        step.level,
        (run.len, dim),
        (keys, row),
        (&mut *turned, POSITIONS),
    );
    multiply(
        step.level,
        Product {
            rows: vectors,
            columns: run.len,
            inner: dim,
        },
        Left {
            data: queries,
            row: dim,
            column: 1,
        },
        Right {
            data: turned,
            row: POSITIONS,
        },
        Into {
            data: scores,
            row: POSITIONS,
            keep: 0.0,
        },
    );
}

/// Scores of each vector by itself against `len` keys: every one is the same chain of operations, so its bits depend on its
/// vector and its key alone, however many of either there are.
#[inline(always)]
fn score_alone<I: Isa>(
    isa: I,
    (queries, dim): (&[f32], usize),
    (keys, row): (&[f32], usize),
    (scores, len): (&mut [f32], usize),
) {
    let (scores, _) = scores.as_chunks_mut::<POSITIONS>();
    assert!(len > 0 && (len - 1) * row + dim <= keys.len());
    assert!(scores.len() * dim <= queries.len());
    let products = Products { isa, dim };
    let vector = |vector: usize| queries.as_ptr().wrapping_add(vector * dim);
    for four in 0..len.div_ceil(4) {
        // The last key stands in for missing ones: four sums are added up in another order than one. Scores of positions
        // that do not exist are never looked at.
        let keys = std::array::from_fn(|key| {
            let key = (4 * four + key).min(len - 1);
            keys.as_ptr().wrapping_add(key * row)
        });
        let mut at = 0;
        while I::WIDE && at + 4 <= scores.len() {
            let vectors = std::array::from_fn(|n| vector(at + n));
            products.put::<4>(vectors, keys, (&mut scores[at..], four));
            at += 4;
        }
        while at + 2 <= scores.len() {
            let vectors = std::array::from_fn(|n| vector(at + n));
            products.put::<2>(vectors, keys, (&mut scores[at..], four));
            at += 2;
        }
        if at < scores.len() {
            products.put::<1>([vector(at)], keys, (&mut scores[at..], four));
        }
    }
}

/// Inner products of vectors of `dim` floats, whose ranges [`score_alone`] checked.
#[derive(Clone, Copy)]
struct Products<I> {
    isa: I,
    dim: usize,
}

impl<I: Isa> Products<I> {
    /// Puts the products of `N` vectors with four others into the columns `4 * four` and following of their scores.
    #[inline(always)]
    fn put<const N: usize>(
        self,
        vectors: [*const f32; N],
        others: [*const f32; 4],
        (scores, four): (&mut [[f32; POSITIONS]], usize),
    ) {
        let isa = self.isa;
        let mut sums = [[isa.splat(0.0); 4]; N];
        let whole = self.dim - self.dim % I::LANES;
        let mut at = 0;
        while at < whole {
            let mut keys = [isa.splat(0.0); 4];
            for k in 0..4 {
                // SAFETY: `dim` floats of every vector can be read.
                keys[k] = unsafe { isa.load(others[k].wrapping_add(at)) };
            }
            for n in 0..N {
                // SAFETY: as above.
                let vector = unsafe { isa.load(vectors[n].wrapping_add(at)) };
                for k in 0..4 {
                    sums[n][k] = isa.mul_add(vector, keys[k], sums[n][k]);
                }
            }
            at += I::LANES;
        }
        if whole < self.dim {
            let rest = self.dim - whole;
            for n in 0..N {
                // SAFETY: as above; these are the last ones.
                let vector = unsafe { isa.load_part(vectors[n].wrapping_add(at), rest) };
                for k in 0..4 {
                    // SAFETY: as above.
                    let key = unsafe { isa.load_part(others[k].wrapping_add(at), rest) };
                    sums[n][k] = isa.mul_add(vector, key, sums[n][k]);
                }
            }
        }
        for n in 0..N {
            scores[n].as_chunks_mut::<4>().0[four] = isa.sums(sums[n]);
        }
    }
}

/// Running softmax of the query vectors of one head.
struct Softmax<'s> {
    /// `[vectors, POSITIONS]`: scores, then weights, of a run.
    scores: &'s mut [f32],
    /// `[vectors, dim]`: weighted sum of the values so far.
    sums: &'s mut [f32],
    /// `[vectors]`: sum of the weights so far.
    totals: &'s mut [f32],
    /// `[vectors]`: largest score so far.
    largest: &'s mut [f32],
}

impl Softmax<'_> {
    /// Turns scores into weights. The first token of the item sees the positions below `reach`, each
    /// later token (`group` vectors further) one more.
    #[inline(always)]
    fn weigh<I: Isa>(&mut self, isa: I, run: Run, (reach, group): (usize, usize)) {
        let dim = self.sums.len() / self.totals.len();
        let (scores, _) = self.scores.as_chunks_mut::<POSITIONS>();
        let sums = self.sums.chunks_exact_mut(dim);
        let running = self.totals.iter_mut().zip(&mut *self.largest);
        for (vector, ((scores, sums), (total, largest))) in
            scores.iter_mut().zip(sums).zip(running).enumerate()
        {
            let seen = (reach + vector / group)
                .saturating_sub(run.position)
                .min(run.len);
            scores[seen..].fill(f32::NEG_INFINITY);
            let now = highest(scores, *largest);
            if now == f32::NEG_INFINITY {
                // Nothing is seen yet, or it has no weight whatever comes: no difference to take.
                scores.fill(0.0);
                continue;
            }
            for score in scores.iter_mut() {
                *score = exp(isa, *score - now);
            }
            let shrink = exp(isa, *largest - now);
            *total = isa.fma(*total, shrink, total_of(scores));
            if now > *largest {
                sums.iter_mut().for_each(|sum| *sum *= shrink);
                *largest = now;
            }
        }
    }

    /// Adds the weighted values of a run.
    #[inline(always)]
    fn gather(&mut self, step: &Step<'_>, (run, head): (Run, usize)) {
        let (dim, row) = (step.extents.dim, step.extents.cached());
        let (start, len) = (run.slot * row + head * dim, (run.len - 1) * row + dim);
        // SAFETY: the cache was written in the first half of the step and is only read now.
        let values = unsafe { step.values.part(start, len) };
        multiply(
            step.level,
            Product {
                rows: self.totals.len(),
                columns: dim,
                inner: run.len,
            },
            Left {
                data: self.scores,
                row: POSITIONS,
                column: 1,
            },
            Right { data: values, row },
            Into {
                data: self.sums,
                row: dim,
                keep: 1.0,
            },
        );
    }
}

/// The largest score, at least `floor`.
#[inline(always)]
fn highest(scores: &[f32; POSITIONS], floor: f32) -> f32 {
    let mut highest = [floor; 16];
    for scores in scores.as_chunks::<16>().0 {
        for (highest, &score) in highest.iter_mut().zip(scores) {
            *highest = if score > *highest { score } else { *highest };
        }
    }
    highest
        .into_iter()
        .fold(floor, |a, b| if b > a { b } else { a })
}

/// The sum of some weights.
#[inline(always)]
fn total_of(weights: &[f32; POSITIONS]) -> f32 {
    let mut totals = [0.0; 16];
    for weights in weights.as_chunks::<16>().0 {
        for (total, &weight) in totals.iter_mut().zip(weights) {
            *total += weight;
        }
    }
    let (low, high) = totals.split_at(8);
    low.iter().zip(high).map(|(low, high)| low + high).sum()
}

/// Writes the outputs of an item that saw all positions of its tokens.
#[inline(always)]
fn finish(step: &Step<'_>, item: Item, result: &Partials<'_>) {
    let (dim, group) = (step.extents.dim, step.extents.group());
    let vectors = item.vectors(step.extents);
    let first = step.batch.range(item.row).start + item.first;
    for (at, sums) in result.sums.chunks_exact(dim).enumerate() {
        let (head, vector) = (item.heads.0 + at / vectors, at % vectors);
        let query_head = head * group + vector % group;
        let to = ((first + vector / group) * step.extents.heads + query_head) * dim;
        // SAFETY: this piece of work alone has these tokens of these heads.
        let output = unsafe { step.output.part_mut(to, dim) };
        let factor = 1.0 / result.totals[at];
        for (output, &sum) in output.iter_mut().zip(sums) {
            *output = sum * factor;
        }
    }
}

versioned!(
    /// Joins the parts of a row, first to last.
    pub(super) fn merge(step: &Step<'_>, partials: Cells<'_>, merge: Merge) => merge_body
);

#[inline(always)]
fn merge_body<I: Isa>(isa: I, step: &Step<'_>, partials: Cells<'_>, merge: Merge) {
    let dim = step.extents.dim;
    let tokens = step.batch.range(merge.row).len();
    let size = Partials::size(step.extents, tokens);
    // SAFETY: all parts have been written, and this piece of work alone has those of this row.
    let parts = unsafe { partials.part_mut(merge.first, merge.parts * size) };
    let (first, rest) = parts.split_at_mut(size);
    let joined = Partials::new(first, dim);
    for part in rest.chunks_exact_mut(size) {
        let part = Partials::new(part, dim);
        for vector in 0..joined.totals.len() {
            let now = f32::max(joined.largest[vector], part.largest[vector]);
            if now == f32::NEG_INFINITY {
                continue;
            }
            let ours = exp(isa, joined.largest[vector] - now);
            let theirs = exp(isa, part.largest[vector] - now);
            let range = vector * dim..(vector + 1) * dim;
            let sums = joined.sums[range.clone()].iter_mut().zip(&part.sums[range]);
            for (sum, &other) in sums {
                *sum = isa.fma(other, theirs, *sum * ours);
            }
            joined.totals[vector] =
                isa.fma(part.totals[vector], theirs, joined.totals[vector] * ours);
            joined.largest[vector] = now;
        }
    }
    let heads = (0, step.extents.kv_heads);
    let item = Item {
        row: merge.row,
        first: 0,
        tokens,
        heads,
        positions: (0, 0),
        alone: true,
        partial: None,
    };
    finish(step, item, &joined);
}
