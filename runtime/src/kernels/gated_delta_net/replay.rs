//! Applying captured transitions to a committed state.

#![allow(unsafe_code)]
#![expect(
    clippy::indexing_slicing,
    reason = "extents are those of the layer, checked at the entry"
)]

use super::super::isa::{Isa, Level, versioned};
use super::layout::{Decay, Heads};
use std::ops::Range;

/// The state after the first `kept` captured transitions, with the arithmetic of the recurrence.
///
/// `state` and `into` are `[values, value_dim, key_dim]`; `transitions(t)` is the captured transition
/// of local token `t`, laid out as [`Heads::transition_of`] says. State is read and written once, however
/// many transitions there are: it is what there is most of.
pub(crate) fn replay<'s>(
    (heads, decay): (Heads, Decay),
    state: &[f32],
    transitions: impl Fn(usize) -> &'s [f32],
    kept: usize,
    into: &mut [f32],
) {
    let level = Level::best();
    let layout = heads.transition_of(decay);
    let len = heads.head_state();
    let mut steps = Vec::with_capacity(kept);
    let states = into.chunks_exact_mut(len).zip(state.chunks_exact(len));
    for (head, (into, state)) in states.enumerate() {
        steps.clear();
        steps.extend((0..kept).map(|t| {
            let transition = transitions(t);
            Transition {
                decay: &transition[layout.decay(head)],
                key: &transition[layout.key(heads.key_head(head))],
                delta: &transition[layout.delta(head)],
            }
        }));
        let path = Path {
            state,
            steps: &steps,
            key_dim: heads.key_dim,
        };
        match decay {
            Decay::PerHead => replay_head(level, path, into),
            Decay::PerKey => replay_columns(level, path, into),
        }
    }
}

/// What happens to one head at one token.
#[derive(Clone, Copy)]
struct Transition<'a> {
    decay: &'a [f32],
    /// `[key_dim]`.
    key: &'a [f32],
    /// `[value_dim]`.
    delta: &'a [f32],
}

/// The state of one head, `[value_dim, key_dim]`, and what happens to it.
#[derive(Clone, Copy)]
struct Path<'a> {
    state: &'a [f32],
    steps: &'a [Transition<'a>],
    key_dim: usize,
}

versioned!(fn replay_head(path: Path<'_>, into: &mut [f32]) => head_body);

versioned!(fn replay_columns(path: Path<'_>, into: &mut [f32]) => columns_body);

#[inline(always)]
fn head_body<I: Isa>(isa: I, path: Path<'_>, into: &mut [f32]) {
    replay_rows::<I, false>(isa, path, into);
}

#[inline(always)]
fn columns_body<I: Isa>(isa: I, path: Path<'_>, into: &mut [f32]) {
    replay_rows::<I, true>(isa, path, into);
}

/// Vectors of a row handled together. Rows follow one another, so that memory is read and written as it lies there: the
/// caches fetch ahead of nothing else, and a state is in none of them that are near.
const TOGETHER: usize = 4;

/// Floats that are asked for ahead of the ones in hand: 2 KiB, some ten cache misses at the pace of a commit.
const AHEAD: usize = 512;
/// Floats of a cache line.
const LINE: usize = 16;

#[inline(always)]
fn replay_rows<I: Isa, const PER_KEY: bool>(isa: I, path: Path<'_>, into: &mut [f32]) {
    let (dim, lanes) = (path.key_dim, I::LANES);
    let vectors = dim / lanes;
    let together = vectors - vectors % TOGETHER;
    let rows = path.state.chunks_exact(dim).zip(into.chunks_exact_mut(dim));
    for (row, (state, into)) in rows.enumerate() {
        for vector in (0..together).step_by(TOGETHER) {
            let at = vector * lanes..(vector + TOGETHER) * lanes;
            advance::<I, TOGETHER, PER_KEY>(isa, path.steps, (row, at), state, into);
        }
        for vector in together..vectors {
            let at = vector * lanes..(vector + 1) * lanes;
            advance::<I, 1, PER_KEY>(isa, path.steps, (row, at), state, into);
        }
        if vectors * lanes < dim {
            let at = vectors * lanes..dim;
            advance::<I, 1, PER_KEY>(isa, path.steps, (row, at), state, into);
        }
    }
}

/// Takes `V` vectors of a row, of which the last may be a part of one, through all steps: `s = s * decay; s = s + key * delta`.
#[inline(always)]
fn advance<I: Isa, const V: usize, const PER_KEY: bool>(
    isa: I,
    steps: &[Transition<'_>],
    (row, at): (usize, Range<usize>),
    state: &[f32],
    into: &mut [f32],
) {
    let (state, into) = (&state[at.clone()], &mut into[at.clone()]);
    for line in (AHEAD..AHEAD + state.len()).step_by(LINE) {
        isa.fetch(
            state.as_ptr().wrapping_add(line),
            into.as_ptr().wrapping_add(line),
        );
    }
    let part = |v: usize| v * I::LANES..state.len().min((v + 1) * I::LANES);
    let mut states = [isa.splat(0.0); V];
    for (v, s) in states.iter_mut().enumerate() {
        *s = isa.get(&state[part(v)]);
    }
    for step in steps {
        let keys = &step.key[at.clone()];
        let delta = isa.splat(step.delta[row]);
        for (v, s) in states.iter_mut().enumerate() {
            let decay = match PER_KEY {
                true => isa.get(&step.decay[at.clone()][part(v)]),
                false => isa.splat(step.decay[0]),
            };
            *s = isa.mul_add(isa.get(&keys[part(v)]), delta, isa.mul(*s, decay));
        }
    }
    for (v, s) in states.into_iter().enumerate() {
        isa.set(&mut into[part(v)], s);
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::Random;
    use super::*;

    /// The same bits as element by element, for rows and columns that fill no vector and no group of rows.
    fn check<I: Isa, const PER_KEY: bool>(isa: I) {
        let mut random = Random::new(5);
        for (value_dim, key_dim, kept) in [
            (1, 1, 0),
            (1, 1, 1),
            (3, 5, 2),
            (4, 16, 3),
            (9, 37, 8),
            (6, 64, 11),
        ] {
            let state = random.floats(value_dim * key_dim, 1.0);
            let decays = if PER_KEY { key_dim } else { 1 };
            let parts: Vec<[Vec<f32>; 3]> = (0..kept)
                .map(|_| [decays, key_dim, value_dim].map(|len| random.floats(len, 1.0)))
                .collect();
            let step = |parts| {
                let [decay, key, delta]: &[Vec<f32>; 3] = parts;
                Transition { decay, key, delta }
            };
            let steps: Vec<Transition<'_>> = parts.iter().map(step).collect();
            let path = Path {
                state: &state,
                steps: &steps,
                key_dim,
            };
            let mut into = vec![f32::NAN; state.len()];
            replay_rows::<I, PER_KEY>(isa, path, &mut into);
            for (at, (found, before)) in into.iter().zip(&state).enumerate() {
                let (row, column) = (at / key_dim, at % key_dim);
                let expected = steps.iter().fold(*before, |s, step| {
                    let decay = step.decay[column % decays];
                    isa.fma(step.key[column], step.delta[row], s * decay)
                });
                assert_eq!(
                    found.to_bits(),
                    expected.to_bits(),
                    "{value_dim} x {key_dim}, {kept}"
                );
            }
        }
    }

    #[test]
    fn every_element_takes_the_same_path() {
        fn both<I: Isa>(isa: I) {
            check::<I, false>(isa);
            check::<I, true>(isa);
        }
        for level in Level::available() {
            match level {
                Level::Baseline(isa) => both(isa),
                #[cfg(target_arch = "x86_64")]
                Level::Avx2(isa) => both(isa),
                #[cfg(target_arch = "x86_64")]
                Level::Avx512(isa) => both(isa),
            }
        }
    }
}
