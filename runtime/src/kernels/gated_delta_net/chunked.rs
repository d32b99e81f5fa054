//! The recurrence in chunks of tokens, as matrix products.
//!
//! Within a chunk that starts from the state `S` (here `[key_dim, value_dim]`), with `G[t]` the product
//! of the decays up to token `t` and `P[t, i]` that of the decays after token `i` up to `t`:
//!
//! ```text
//! delta[t] = rate[t] * (value[t] - G[t] * key[t] S - sum over i < t of P[t, i] (key[t] . key[i]) delta[i])
//! output[t] = G[t] * query[t] S + sum over i <= t of P[t, i] (query[t] . key[i]) delta[i]
//! S' = G[last] * S + sum over i of P[last, i] key[i] delta[i]
//! ```
//!
//! Products of decays are multiplied up, never divided: they may underflow but not overflow.

#![expect(
    clippy::indexing_slicing,
    reason = "extents are those of one head, checked at the entry"
)]

use super::super::gemm::{Extents, Into, Left, Right, multiply, transpose};
use super::super::isa::{Isa, Level};
use super::recurrent::Head;

/// Tokens of a chunk: enough for the products to run from registers, few enough for the quadratic
/// part to stay small.
pub(super) const CHUNK: usize = 32;

/// Tokens solved together before the rest of the chunk is brought up to date.
const BLOCK: usize = 8;

/// Extents of a head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dims {
    /// Elements of a key.
    pub(super) key: usize,
    /// Elements of a value.
    pub(super) value: usize,
}

impl Dims {
    /// Floats of [`Work`].
    pub(super) const fn scratch(self) -> usize {
        self.key * self.value + 2 * CHUNK * self.value + CHUNK * (self.key + 2 * CHUNK)
    }
}

/// Working memory of one head.
#[derive(Debug)]
pub(super) struct Work<'s> {
    level: Level,
    dims: Dims,
    /// `[key, value]`.
    state: &'s mut [f32],
    /// `[CHUNK, value]`: what goes into the state.
    pub(super) deltas: &'s mut [f32],
    /// `[CHUNK, value]`.
    pub(super) outputs: &'s mut [f32],
    /// `[key, CHUNK]`: keys of the chunk, transposed.
    turned: &'s mut [f32],
    /// `[CHUNK, CHUNK]`: how deltas depend on earlier deltas, negated.
    by_key: &'s mut [f32],
    /// `[CHUNK, CHUNK]`: how outputs depend on deltas.
    by_query: &'s mut [f32],
}

impl<'s> Work<'s> {
    /// Cuts up [`Dims::scratch`] floats.
    pub(super) fn new(level: Level, dims: Dims, scratch: &'s mut [f32]) -> Self {
        let (state, rest) = scratch.split_at_mut(dims.key * dims.value);
        let (deltas, rest) = rest.split_at_mut(CHUNK * dims.value);
        let (outputs, rest) = rest.split_at_mut(CHUNK * dims.value);
        let (turned, rest) = rest.split_at_mut(CHUNK * dims.key);
        let (by_key, by_query) = rest.split_at_mut(CHUNK * CHUNK);
        Self {
            level,
            dims,
            state,
            deltas,
            outputs,
            turned,
            by_key,
            by_query,
        }
    }

    /// Starts from a state `[value, key]`.
    #[inline(always)]
    pub(super) fn load(&mut self, state: &[f32]) {
        let Dims { key, value } = self.dims;
        transpose(self.level, (value, key), (state, key), (self.state, value));
    }

    /// Writes the state, `[value, key]`.
    #[inline(always)]
    pub(super) fn store(&self, state: &mut [f32]) {
        let Dims { key, value } = self.dims;
        transpose(self.level, (key, value), (self.state, value), (state, key));
    }

    /// Takes the state through the `tokens` (at most [`CHUNK`]) from `first` on. `deltas` must hold
    /// their values; afterwards it holds their deltas, and `outputs` their outputs.
    #[inline(always)]
    pub(super) fn advance<I: Isa>(&mut self, isa: I, head: &Head<'_>, first: usize, tokens: usize) {
        let dim = self.dims.key;
        let chunk = Chunk {
            queries: &head.queries[first * dim..(first + tokens) * dim],
            keys: &head.keys[first * dim..(first + tokens) * dim],
            decays: &head.decays[first..first + tokens],
            rates: &head.rates[first..first + tokens],
        };
        self.relate(chunk);
        let mut remaining = [0.0; CHUNK];
        let kept = self.weigh(chunk, &mut remaining);
        self.read_state(isa, chunk);
        self.solve(isa, tokens);
        self.read_deltas(tokens);
        self.write_state(chunk, (&remaining, kept));
    }

    /// Inner products of keys and queries with the keys up to them.
    #[inline(always)]
    fn relate(&mut self, chunk: Chunk<'_>) {
        let (tokens, dim) = (chunk.decays.len(), self.dims.key);
        transpose(
            self.level,
            (tokens, dim),
            (chunk.keys, dim),
            (self.turned, CHUNK),
        );
        for (left, into) in [
            (chunk.keys, &mut *self.by_key),
            (chunk.queries, &mut *self.by_query),
        ] {
            for first in (0..tokens).step_by(BLOCK) {
                let rows = BLOCK.min(tokens - first);
                multiply(
                    self.level,
                    Extents {
                        rows,
                        columns: (first + BLOCK).min(CHUNK),
                        inner: dim,
                    },
                    Left {
                        data: &left[first * dim..],
                        row: dim,
                        column: 1,
                    },
                    Right {
                        data: self.turned,
                        row: CHUNK,
                    },
                    Into {
                        data: &mut into[first * CHUNK..],
                        row: CHUNK,
                        keep: 0.0,
                    },
                );
            }
        }
    }

    /// Applies rates and decays to the inner products. Leaves the decay still to come after each
    /// token in `remaining` and returns that of the whole chunk.
    #[inline(always)]
    fn weigh(&mut self, chunk: Chunk<'_>, remaining: &mut [f32; CHUNK]) -> f32 {
        let value = self.dims.value;
        let mut passed = 1.0;
        for (t, (&decay, &rate)) in chunk.decays.iter().zip(chunk.rates).enumerate() {
            passed *= decay;
            remaining[..t].iter_mut().for_each(|r| *r *= decay);
            remaining[t] = 1.0;
            let keys = &mut self.by_key[t * CHUNK..(t + 1) * CHUNK];
            let queries = &mut self.by_query[t * CHUNK..(t + 1) * CHUNK];
            for ((k, q), &r) in keys.iter_mut().zip(&mut *queries).zip(&remaining[..=t]) {
                *k *= -rate * r;
                *q *= r;
            }
            queries[t + 1..].fill(0.0);
            let values = &mut self.deltas[t * value..(t + 1) * value];
            values.iter_mut().for_each(|v| *v *= rate);
        }
        passed
    }

    /// Subtracts from the values what the state at the start predicts, and starts the outputs.
    #[inline(always)]
    fn read_state<I: Isa>(&mut self, isa: I, chunk: Chunk<'_>) {
        let (tokens, Dims { key, value }) = (chunk.decays.len(), self.dims);
        let extents = Extents {
            rows: tokens,
            columns: value,
            inner: key,
        };
        let state = || Right {
            data: self.state,
            row: value,
        };
        let left = |data| Left {
            data,
            row: key,
            column: 1,
        };
        multiply(
            self.level,
            extents,
            left(chunk.keys),
            state(),
            Into {
                data: self.outputs,
                row: value,
                keep: 0.0,
            },
        );
        let mut passed = 1.0;
        for (t, (&decay, &rate)) in chunk.decays.iter().zip(chunk.rates).enumerate() {
            passed *= decay;
            let range = t * value..(t + 1) * value;
            for (v, &p) in self.deltas[range.clone()]
                .iter_mut()
                .zip(&self.outputs[range])
            {
                *v = isa.fma(-rate * passed, p, *v);
            }
        }
        multiply(
            self.level,
            extents,
            left(chunk.queries),
            state(),
            Into {
                data: self.outputs,
                row: value,
                keep: 0.0,
            },
        );
        let mut passed = 1.0;
        for (outputs, &decay) in self.outputs.chunks_exact_mut(value).zip(chunk.decays) {
            passed *= decay;
            outputs.iter_mut().for_each(|o| *o *= passed);
        }
    }

    /// Forward substitution: subtracts from each delta what earlier ones account for.
    #[inline(always)]
    fn solve<I: Isa>(&mut self, isa: I, tokens: usize) {
        let value = self.dims.value;
        for first in (0..tokens).step_by(BLOCK) {
            let rows = BLOCK.min(tokens - first);
            let (solved, rest) = self.deltas.split_at_mut(first * value);
            multiply(
                self.level,
                Extents {
                    rows,
                    columns: value,
                    inner: first,
                },
                Left {
                    data: &self.by_key[first * CHUNK..],
                    row: CHUNK,
                    column: 1,
                },
                Right {
                    data: solved,
                    row: value,
                },
                Into {
                    data: rest,
                    row: value,
                    keep: 1.0,
                },
            );
            for row in 1..rows {
                let (before, now) = rest.split_at_mut(row * value);
                let factors = &self.by_key[(first + row) * CHUNK + first..][..row];
                for (before, &factor) in before.chunks_exact(value).zip(factors) {
                    add_scaled(isa, factor, before, &mut now[..value]);
                }
            }
        }
    }

    /// Adds the share of the chunk's own deltas to the outputs.
    #[inline(always)]
    fn read_deltas(&mut self, tokens: usize) {
        let value = self.dims.value;
        for first in (0..tokens).step_by(BLOCK) {
            let rows = BLOCK.min(tokens - first);
            multiply(
                self.level,
                Extents {
                    rows,
                    columns: value,
                    inner: first + rows,
                },
                Left {
                    data: &self.by_query[first * CHUNK..],
                    row: CHUNK,
                    column: 1,
                },
                Right {
                    data: self.deltas,
                    row: value,
                },
                Into {
                    data: &mut self.outputs[first * value..],
                    row: value,
                    keep: 1.0,
                },
            );
        }
    }

    /// Takes the state to the end of the chunk.
    #[inline(always)]
    fn write_state(&mut self, chunk: Chunk<'_>, (remaining, kept): (&[f32; CHUNK], f32)) {
        let (tokens, Dims { key, value }) = (chunk.decays.len(), self.dims);
        // The transposed keys are used up: their memory takes the decayed ones.
        let decayed = &mut self.turned[..tokens * key];
        let keys = decayed
            .chunks_exact_mut(key)
            .zip(chunk.keys.chunks_exact(key));
        for ((decayed, keys), &remaining) in keys.zip(remaining) {
            decayed
                .iter_mut()
                .zip(keys)
                .for_each(|(d, &k)| *d = k * remaining);
        }
        multiply(
            self.level,
            Extents {
                rows: key,
                columns: value,
                inner: tokens,
            },
            Left {
                data: decayed,
                row: 1,
                column: key,
            },
            Right {
                data: self.deltas,
                row: value,
            },
            Into {
                data: self.state,
                row: value,
                keep: kept,
            },
        );
    }
}

/// Tokens of a chunk.
#[derive(Clone, Copy)]
struct Chunk<'a> {
    queries: &'a [f32],
    keys: &'a [f32],
    decays: &'a [f32],
    rates: &'a [f32],
}

/// `to += factor * from`, element by element.
#[inline(always)]
fn add_scaled<I: Isa>(isa: I, factor: f32, from: &[f32], to: &mut [f32]) {
    for (to, &from) in to.iter_mut().zip(from) {
        *to = isa.fma(factor, from, *to);
    }
}
