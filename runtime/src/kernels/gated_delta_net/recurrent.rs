//! The recurrence, token by token.
//!
//! Each row of a head's `[value_dim, key_dim]` state evolves on its own, so a few of them go through
//! all tokens together while they are in the nearest cache: state memory is read and written once.

#![allow(unsafe_code)]
#![expect(
    clippy::indexing_slicing,
    reason = "extents are those of one head, checked at the entry"
)]

use super::super::isa::Isa;

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
    /// `[rows, key_dim]` before the token, where that is not in `state`.
    pub(super) before: Option<&'a [f32]>,
    /// `[rows, key_dim]` after the token.
    pub(super) state: &'a mut [f32],
    /// `[rows]`.
    pub(super) value: &'a [f32],
    /// `[rows]`: what the state's prediction of the value was short of, times the rate.
    pub(super) delta: &'a mut [f32],
    /// `[rows]`.
    pub(super) output: &'a mut [f32],
}

/// State rows handled together: their sums are independent of each other, and all are in registers.
const TOGETHER: usize = 4;

/// Takes a strip of state rows through one token.
#[inline(always)]
pub(super) fn advance_strip<I: Isa>(isa: I, token: Token<'_>, strip: &mut Strip<'_>) {
    let rows = strip.value.len();
    let mut row = 0;
    while row + TOGETHER <= rows {
        advance_rows::<I, TOGETHER>(isa, token, strip, row);
        row += TOGETHER;
    }
    while row < rows {
        advance_rows::<I, 1>(isa, token, strip, row);
        row += 1;
    }
}

#[inline(always)]
fn advance_rows<I: Isa, const R: usize>(
    isa: I,
    token: Token<'_>,
    strip: &mut Strip<'_>,
    row: usize,
) {
    let dim = token.key.len();
    let state = &mut strip.state[row * dim..(row + R) * dim];
    let after = state.as_mut_ptr();
    let apart = |before: &[f32]| before[row * dim..(row + R) * dim].as_ptr();
    let before = strip.before.map_or(after.cast_const(), apart);
    let rows = Rows {
        isa,
        before,
        after,
        dim,
    };
    let seen = rows.inner_products::<R>(token.key);
    let mut deltas = [0.0; R];
    for (r, by_key) in seen.into_iter().enumerate() {
        deltas[r] = token.rate * isa.fma(-token.decay, by_key, strip.value[row + r]);
    }
    strip.delta[row..row + R].copy_from_slice(&deltas);
    let outputs = rows.transit::<R>(token, deltas);
    strip.output[row..row + R].copy_from_slice(&outputs);
}

/// Some rows of `dim` floats each, which are read at `before` and written at `after`: one place, or two
/// that do not overlap.
#[derive(Clone, Copy)]
struct Rows<I> {
    isa: I,
    before: *const f32,
    after: *mut f32,
    dim: usize,
}

impl<I: Isa> Rows<I> {
    /// Of each row with one vector.
    #[inline(always)]
    fn inner_products<const R: usize>(self, vector: &[f32]) -> [f32; R] {
        let isa = self.isa;
        let mut sums = [isa.splat(0.0); R];
        for (at, vector) in vector.chunks(I::LANES).enumerate() {
            let len = vector.len();
            let vector = isa.get(vector);
            for (r, sum) in sums.iter_mut().enumerate() {
                *sum = isa.mul_add(self.read(r, at * I::LANES, len), vector, *sum);
            }
        }
        self.totals(sums)
    }

    /// Takes each row across one transition, `s = s * decay; s = s + key * delta`, and returns its inner
    /// product with the query.
    ///
    /// The query meets the state after the transition. Its product with the state before, corrected by
    /// the change, would be known earlier, but loses digits where the change cancels what was there.
    #[inline(always)]
    fn transit<const R: usize>(self, token: Token<'_>, deltas: [f32; R]) -> [f32; R] {
        let isa = self.isa;
        let decay = isa.splat(token.decay);
        let deltas = deltas.map(|delta| isa.splat(delta));
        let mut sums = [isa.splat(0.0); R];
        let vectors = token.key.chunks(I::LANES).zip(token.query.chunks(I::LANES));
        for (at, (key, query)) in vectors.enumerate() {
            let len = key.len();
            let (key, query) = (isa.get(key), isa.get(query));
            for (r, (&delta, sum)) in deltas.iter().zip(&mut sums).enumerate() {
                let s = isa.mul(self.read(r, at * I::LANES, len), decay);
                let s = isa.mul_add(key, delta, s);
                self.write(r, at * I::LANES, len, s);
                *sum = isa.mul_add(s, query, *sum);
            }
        }
        self.totals(sums)
    }

    #[inline(always)]
    fn totals<const R: usize>(self, sums: [I::Vector; R]) -> [f32; R] {
        let mut totals = [0.0; R];
        match sums.as_chunks::<4>() {
            ([four], []) => totals.copy_from_slice(&self.isa.sums(*four)),
            _ => totals = sums.map(|sum| self.isa.sum(sum)),
        }
        totals
    }

    /// `len` floats (at most a vector) of row `r` from `at` on, before the token.
    #[inline(always)]
    fn read(self, r: usize, at: usize, len: usize) -> I::Vector {
        let from = self.before.wrapping_add(r * self.dim + at);
        if len == I::LANES {
            // SAFETY: inside the rows.
            unsafe { self.isa.load(from) }
        } else {
            // SAFETY: as above.
            unsafe { self.isa.load_part(from, len) }
        }
    }

    /// Writes what [`Rows::read`] reads.
    #[inline(always)]
    fn write(self, r: usize, at: usize, len: usize, vector: I::Vector) {
        let to = self.after.wrapping_add(r * self.dim + at);
        if len == I::LANES {
            // SAFETY: inside the rows, which the strip borrows exclusively.
            unsafe { self.isa.store(vector, to) };
        } else {
            // SAFETY: as above.
            unsafe { self.isa.store_part(vector, to, len) };
        }
    }
}
