//! The recurrence, token by token.
//!
//! Each row of a head's `[value_dim, key_dim]` state evolves on its own, so a few of them go through
//! all tokens together while they are in the nearest cache: state memory is read and written once.

#![expect(
    clippy::indexing_slicing,
    reason = "extents are those of one head, checked at the entry"
)]

use super::super::isa::Isa;
use super::super::math::{LANES, Lanes, accumulate, sum};

/// One value head of one batch row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head<'a> {
    /// `[tokens, key_dim]`.
    pub(super) queries: &'a [f32],
    /// `[tokens, key_dim]`.
    pub(super) keys: &'a [f32],
    /// `[tokens]`.
    pub(super) decays: &'a [f32],
    /// `[tokens]`.
    pub(super) rates: &'a [f32],
    /// Elements of a key.
    pub(super) key_dim: usize,
}

/// What happens to some state rows at one token.
#[derive(Clone, Copy)]
pub(super) struct Token<'a> {
    query: &'a [f32],
    key: &'a [f32],
    decay: f32,
    rate: f32,
}

impl<'a> Head<'a> {
    #[inline(always)]
    pub(super) fn token(&self, t: usize) -> Token<'a> {
        let at = t * self.key_dim;
        Token {
            query: &self.queries[at..at + self.key_dim],
            key: &self.keys[at..at + self.key_dim],
            decay: self.decays[t],
            rate: self.rates[t],
        }
    }
}

/// State rows that go through a token together.
#[derive(Debug)]
pub(super) struct Strip<'a> {
    /// `[rows, key_dim]`, updated in place.
    pub(super) state: &'a mut [f32],
    /// `[rows]`.
    pub(super) value: &'a [f32],
    /// `[rows]`: what the state's prediction of the value was short of, times the rate.
    pub(super) delta: &'a mut [f32],
    /// `[rows]`.
    pub(super) output: &'a mut [f32],
}

/// Takes a strip of state rows through one token.
#[inline(always)]
pub(super) fn advance_strip<I: Isa>(token: Token<'_>, strip: &mut Strip<'_>) {
    let dim = token.key.len();
    let rows = strip.value.len();
    let mut row = 0;
    while I::WIDE && row + 4 <= rows {
        advance_rows::<I, 4>(token, strip, row);
        row += 4;
    }
    while row + 2 <= rows {
        advance_rows::<I, 2>(token, strip, row);
        row += 2;
    }
    if row < rows && dim > 0 {
        advance_rows::<I, 1>(token, strip, row);
    }
}

#[inline(always)]
fn advance_rows<I: Isa, const R: usize>(token: Token<'_>, strip: &mut Strip<'_>, row: usize) {
    let dim = token.key.len();
    let state = &mut strip.state[row * dim..(row + R) * dim];
    let seen = inner_products::<I, R>(state, token.key);
    for (r, by_key) in seen.into_iter().enumerate() {
        let delta = token.rate * I::fma(-token.decay, by_key, strip.value[row + r]);
        strip.delta[row + r] = delta;
        transit::<I>(
            &mut state[r * dim..(r + 1) * dim],
            token.decay,
            token.key,
            delta,
        );
    }
    // The query meets the state after the transition. Its product with the state before, corrected by the change,
    // would spare a pass, but loses digits where the change cancels what was there.
    let seen = inner_products::<I, R>(state, token.query);
    strip.output[row..row + R].copy_from_slice(&seen);
}

/// Of each state row with one vector.
#[inline(always)]
fn inner_products<I: Isa, const R: usize>(state: &[f32], vector: &[f32]) -> [f32; R] {
    let dim = vector.len();
    let (wide, rest) = vector.as_chunks::<LANES>();
    let mut parts = [[0.0; LANES]; R];
    for (chunk, lane) in wide.iter().enumerate() {
        for (r, part) in parts.iter_mut().enumerate() {
            accumulate::<I>(part, lanes(state, r * dim + chunk * LANES), lane);
        }
    }
    let mut sums = [0.0; R];
    for (r, found) in sums.iter_mut().enumerate() {
        let tail = &state[r * dim + wide.len() * LANES..(r + 1) * dim];
        for (&s, &v) in tail.iter().zip(rest) {
            *found = I::fma(s, v, *found);
        }
        *found += sum(&parts[r]);
    }
    sums
}

#[inline(always)]
fn lanes(from: &[f32], at: usize) -> &Lanes {
    from[at..].first_chunk().unwrap_or(&[0.0; LANES])
}

/// One row of the state across one transition: `s = s * decay; s = s + key * delta`.
#[inline(always)]
pub(super) fn transit<I: Isa>(state: &mut [f32], decay: f32, key: &[f32], delta: f32) {
    for (s, &k) in state.iter_mut().zip(key) {
        *s = I::fma(k, delta, *s * decay);
    }
}
