//! The first half of a step: norms, rotation, and new keys and values into the cache.

#![allow(unsafe_code)]
#![expect(
    clippy::indexing_slicing,
    reason = "tokens and heads are within the checked extents"
)]

use super::super::isa::{Isa, versioned};
use super::super::math::dot;
use super::super::memory::Cells;
use super::kernel::Step;

versioned!(
    /// Handles one packed token of a row.
    ///
    /// Its queries go to `queries`, `[kv_heads, tokens, group, dim]`, multiplied with the scale.
    pub(super) fn project(step: &Step<'_>, queries: Cells<'_>, row: usize, token: usize)
        => project_body
);

#[inline(always)]
fn project_body<I: Isa>(isa: I, step: &Step<'_>, queries: Cells<'_>, row: usize, token: usize) {
    let extents = step.extents;
    let (dim, group) = (extents.dim, extents.group());
    let tokens = step.qkv.len() / extents.packed();
    let packed = &step.qkv[token * extents.packed()..(token + 1) * extents.packed()];
    let (q, rest) = packed.split_at(extents.heads * dim);
    let (k, v) = rest.split_at(extents.cached());
    let rotation = step.rotation.map(|rotation| rotation.at(token));
    for (head, q) in q.chunks_exact(dim).enumerate() {
        let at = ((head / group * tokens + token) * group + head % group) * dim;
        // SAFETY: this piece of work alone has this token.
        let query = unsafe { queries.part_mut(at, dim) };
        shape(isa, q, step.query_norm, rotation, query);
        for x in query {
            *x *= step.scale;
        }
    }
    let position = step.plan.past(row) + token - step.batch.range(row).start;
    let at = step.plan.slot(row, position) * extents.cached();
    // SAFETY: the plan gives every new position a slot of its own.
    let keys = unsafe { step.keys.part_mut(at, extents.cached()) };
    // SAFETY: as above.
    let values = unsafe { step.values.part_mut(at, extents.cached()) };
    for (k, key) in k.chunks_exact(dim).zip(keys.chunks_exact_mut(dim)) {
        shape(isa, k, step.key_norm, rotation, key);
    }
    values.copy_from_slice(v);
}

/// A root-mean-square norm over each head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Norm<'a> {
    /// `[dim]`.
    pub(crate) weight: &'a [f32],
    /// Added to the mean square.
    pub(crate) epsilon: f32,
}

/// Angles of all packed tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rotation<'a> {
    /// `[tokens, half]`.
    pub(crate) cos: &'a [f32],
    /// `[tokens, half]`.
    pub(crate) sin: &'a [f32],
    /// Half the rotated elements: element `i` turns with element `i + half`.
    pub(crate) half: usize,
}

impl<'a> Rotation<'a> {
    #[inline(always)]
    fn at(self, token: usize) -> (&'a [f32], &'a [f32]) {
        let range = token * self.half..(token + 1) * self.half;
        (&self.cos[range.clone()], &self.sin[range])
    }
}

/// Norm, then rotation of the leading elements.
#[inline(always)]
fn shape<I: Isa>(
    isa: I,
    from: &[f32],
    norm: Option<Norm<'_>>,
    rotation: Option<(&[f32], &[f32])>,
    to: &mut [f32],
) {
    match norm {
        Some(norm) => {
            #[expect(clippy::cast_precision_loss, reason = "a head size is small")]
            let mean = dot(isa, from, from) / from.len() as f32;
            let factor = 1.0 / (mean + norm.epsilon).sqrt();
            for ((to, &x), &w) in to.iter_mut().zip(from).zip(norm.weight) {
                *to = x * factor * w;
            }
        }
        None => to.copy_from_slice(from),
    }
    if let Some((cos, sin)) = rotation {
        let (first, rest) = to.split_at_mut(cos.len());
        for (((a, b), &c), &s) in first.iter_mut().zip(rest).zip(cos).zip(sin) {
            (*a, *b) = (*a * c - *b * s, *b * c + *a * s);
        }
    }
}
