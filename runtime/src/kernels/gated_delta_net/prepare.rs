//! What every head needs of each token, computed once: unit keys, scaled unit queries, gates.

#![allow(unsafe_code)]
#![expect(
    clippy::indexing_slicing,
    reason = "tokens and heads are within the checked extents"
)]

use super::super::error::KernelError;
use super::super::isa::{Isa, Level, versioned};
use super::super::math::dot;
use super::super::memory::Cells;
use super::super::parallel::Parallel;
use super::layout::Heads;

/// Added to a squared length before its root is taken.
const EPSILON: f32 = 1e-6;

/// Tokens of one piece of work.
const TOKENS: usize = 8;

/// Inputs of a step, token-major.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inputs<'a> {
    /// `[tokens, packed]`: query | key | value.
    pub(crate) qkv: &'a [f32],
    /// `[tokens, values]`: raw decay projection.
    pub(crate) decay: &'a [f32],
    /// `[tokens, values]`: raw update rate projection.
    pub(crate) beta: &'a [f32],
    /// `[values]`.
    pub(crate) a_log: &'a [f32],
    /// `[values]`.
    pub(crate) dt_bias: &'a [f32],
}

/// Per-token quantities, head-major so that one head's tokens are contiguous.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prepared {
    tokens: usize,
    key_dim: usize,
    queries: Vec<f32>,
    keys: Vec<f32>,
    decays: Vec<f32>,
    rates: Vec<f32>,
    slopes: Vec<f32>,
}

impl Prepared {
    /// Computes the quantities of a step.
    pub(crate) fn fill(
        &mut self,
        heads: Heads,
        inputs: Inputs<'_>,
        level: Level,
        threads: &dyn Parallel,
    ) -> Result<(), KernelError> {
        let tokens = inputs.qkv.len() / heads.packed().max(1);
        self.tokens = tokens;
        self.key_dim = heads.key_dim;
        self.queries
            .resize(heads.keys * tokens * heads.key_dim, 0.0);
        self.keys.resize(heads.keys * tokens * heads.key_dim, 0.0);
        self.decays.resize(heads.values * tokens, 0.0);
        self.rates.resize(heads.values * tokens, 0.0);
        self.slopes.clear();
        self.slopes.extend(inputs.a_log.iter().map(|a| -a.exp()));
        let target = Target {
            heads,
            tokens,
            slopes: &self.slopes,
            queries: Cells::new(&mut self.queries),
            keys: Cells::new(&mut self.keys),
            decays: Cells::new(&mut self.decays),
            rates: Cells::new(&mut self.rates),
        };
        let cost = TOKENS * heads.keys * heads.key_dim * 8;
        threads.run(tokens.div_ceil(TOKENS), cost, &|item| {
            for token in item * TOKENS..((item + 1) * TOKENS).min(tokens) {
                prepare_token(level, &target, inputs, token);
            }
        })
    }

    /// Scaled unit queries of one key head from `token` on, `[.., key_dim]`.
    pub(crate) fn queries(&self, key_head: usize, token: usize) -> &[f32] {
        &self.queries[(key_head * self.tokens + token) * self.key_dim..]
    }

    /// Unit keys of one key head from `token` on, `[.., key_dim]`.
    pub(crate) fn keys(&self, key_head: usize, token: usize) -> &[f32] {
        &self.keys[(key_head * self.tokens + token) * self.key_dim..]
    }

    /// Factors that the state of one value head is multiplied with from `token` on.
    pub(crate) fn decays(&self, value_head: usize, token: usize) -> &[f32] {
        &self.decays[value_head * self.tokens + token..]
    }

    /// Update rates of one value head from `token` on.
    pub(crate) fn rates(&self, value_head: usize, token: usize) -> &[f32] {
        &self.rates[value_head * self.tokens + token..]
    }
}

struct Target<'a> {
    heads: Heads,
    tokens: usize,
    slopes: &'a [f32],
    queries: Cells<'a>,
    keys: Cells<'a>,
    decays: Cells<'a>,
    rates: Cells<'a>,
}

versioned!(fn prepare_token(to: &Target<'_>, inputs: Inputs<'_>, token: usize) => prepare_body);

#[inline(always)]
fn prepare_body<I: Isa>(isa: I, to: &Target<'_>, inputs: Inputs<'_>, token: usize) {
    let dim = to.heads.key_dim;
    let packed = &inputs.qkv[token * to.heads.packed()..][..to.heads.packed()];
    let (queries, rest) = packed.split_at(to.heads.keys * dim);
    let keys = &rest[..to.heads.keys * dim];
    #[expect(clippy::cast_precision_loss, reason = "a head size is small")]
    let scale = 1.0 / (dim as f32).sqrt();
    for (head, (q, k)) in queries
        .chunks_exact(dim)
        .zip(keys.chunks_exact(dim))
        .enumerate()
    {
        let at = head * to.tokens + token;
        // SAFETY: this piece of work alone has this token.
        let query = unsafe { to.queries.part_mut(at * dim, dim) };
        // SAFETY: as above.
        let key = unsafe { to.keys.part_mut(at * dim, dim) };
        normalise(isa, q, scale, query);
        normalise(isa, k, 1.0, key);
    }
    for head in 0..to.heads.values {
        let (from, at) = (token * to.heads.values + head, head * to.tokens + token);
        // SAFETY: this piece of work alone has this token.
        let decay = unsafe { to.decays.part_mut(at, 1) };
        // SAFETY: as above.
        let rate = unsafe { to.rates.part_mut(at, 1) };
        decay[0] = (to.slopes[head] * softplus(inputs.decay[from] + inputs.dt_bias[head])).exp();
        rate[0] = 1.0 / (1.0 + (-inputs.beta[from]).exp());
    }
}

#[inline(always)]
fn normalise<I: Isa>(isa: I, from: &[f32], scale: f32, to: &mut [f32]) {
    let factor = scale / (dot(isa, from, from) + EPSILON).sqrt();
    for (to, &x) in to.iter_mut().zip(from) {
        *to = x * factor;
    }
}

fn softplus(x: f32) -> f32 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}
