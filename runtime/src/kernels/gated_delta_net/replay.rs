//! Applying captured transitions to a committed state.

#![allow(unsafe_code)]
#![expect(
    clippy::indexing_slicing,
    reason = "extents are those of the layer, checked at the entry"
)]

use super::super::isa::{Isa, Level, versioned};
use super::layout::{Decay, Heads};
use std::ops::Range;

/// Takes the states of some heads, from `first` on, through the first `kept` captured transitions, with the arithmetic of
/// the recurrence.
///
/// `state` is `[some of the values, value_dim, key_dim]`; `transitions(t)` is the captured transition of local token `t`, laid
/// out as [`Heads::transition_of`] says. State is read and written once, however many transitions there are, and where it is:
/// it is what there is most of, and a second place for it would have to be fetched to be written.
pub(crate) fn replay<'s>(
    (heads, decay): (Heads, Decay),
    transitions: impl Fn(usize) -> &'s [f32],
    kept: usize,
    (first, state): (usize, &mut [f32]),
) {
    let level = Level::best();
    let layout = heads.transition_of(decay);
    let len = heads.head_state();
    let mut steps = Vec::with_capacity(kept);
    for (head, state) in (first..).zip(state.chunks_exact_mut(len)) {
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
            steps: &steps,
            key_dim: heads.key_dim,
        };
        match decay {
            Decay::PerHead => replay_head(level, path, state),
            Decay::PerKey => replay_columns(level, path, state),
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

/// What happens to the state of one head, `[value_dim, key_dim]`.
#[derive(Clone, Copy)]
struct Path<'a> {
    steps: &'a [Transition<'a>],
    key_dim: usize,
}

versioned!(fn replay_head(path: Path<'_>, state: &mut [f32]) => head_body);

versioned!(fn replay_columns(path: Path<'_>, state: &mut [f32]) => columns_body);

#[inline(always)]
fn head_body<I: Isa>(isa: I, path: Path<'_>, state: &mut [f32]) {
    replay_rows::<I, false>(isa, path, state);
}

#[inline(always)]
fn columns_body<I: Isa>(isa: I, path: Path<'_>, state: &mut [f32]) {
    replay_rows::<I, true>(isa, path, state);
}

/// Vectors of a row handled together. Rows follow one another, so that memory is read and written as it lies there: the
/// caches fetch ahead of nothing else, and a state is in none of them that are near.
const TOGETHER: usize = 4;

/// Floats that are asked for ahead of the ones in hand: 8 KiB, two pages, which is further than the caches fetch ahead by
/// themselves.
const AHEAD: usize = 2048;
/// Floats of a cache line.
const LINE: usize = 16;

#[inline(always)]
fn replay_rows<I: Isa, const PER_KEY: bool>(isa: I, path: Path<'_>, state: &mut [f32]) {
    // Blocks of sixteen registers, where there are twice as many.
    match (path.key_dim / I::LANES, path.key_dim % I::LANES) {
        (4, 0) if I::WIDE => replay_blocks::<I, 4, 4, PER_KEY>(isa, path, state),
        (8, 0) if I::WIDE => replay_blocks::<I, 2, 8, PER_KEY>(isa, path, state),
        _ => replay_each::<I, PER_KEY>(isa, path, (0, state)),
    }
}

/// `ROWS` rows at a time, of `VECTORS` vectors each: keys are read once for all of them.
#[inline(always)]
fn replay_blocks<I: Isa, const ROWS: usize, const VECTORS: usize, const PER_KEY: bool>(
    isa: I,
    path: Path<'_>,
    state: &mut [f32],
) {
    let (first, size) = (state.len() / path.key_dim, ROWS * path.key_dim);
    let mut blocks = state.chunks_exact_mut(size);
    for (block, state) in blocks.by_ref().enumerate() {
        advance_block::<I, ROWS, VECTORS, PER_KEY>(isa, path.steps, block * ROWS, state);
    }
    let rest = blocks.into_remainder();
    replay_each::<I, PER_KEY>(isa, path, (first - first % ROWS, rest));
}

/// Takes a block of rows, from row `row` of the head on, through all steps.
#[inline(always)]
fn advance_block<I: Isa, const ROWS: usize, const VECTORS: usize, const PER_KEY: bool>(
    isa: I,
    steps: &[Transition<'_>],
    row: usize,
    state: &mut [f32],
) {
    fetch_ahead(isa, state);
    let at = |r: usize, v: usize| (r * VECTORS + v) * I::LANES..(r * VECTORS + v + 1) * I::LANES;
    let mut states = [[isa.splat(0.0); ROWS]; VECTORS];
    for (v, column) in states.iter_mut().enumerate() {
        for (r, s) in column.iter_mut().enumerate() {
            *s = isa.get(&state[at(r, v)]);
        }
    }
    for step in steps {
        let mut deltas = [isa.splat(0.0); ROWS];
        for (delta, of_row) in deltas.iter_mut().zip(&step.delta[row..row + ROWS]) {
            *delta = isa.splat(*of_row);
        }
        for (v, column) in states.iter_mut().enumerate() {
            let key = isa.get(&step.key[at(0, v)]);
            let decay = decay_of::<I, PER_KEY>(isa, step, at(0, v));
            for (s, delta) in column.iter_mut().zip(deltas) {
                *s = isa.mul_add(key, delta, isa.mul(*s, decay));
            }
        }
    }
    for (v, column) in states.iter().enumerate() {
        for (r, s) in column.iter().enumerate() {
            isa.set(&mut state[at(r, v)], *s);
        }
    }
}

/// What some columns of a row decay by at a step.
#[inline(always)]
fn decay_of<I: Isa, const PER_KEY: bool>(
    isa: I,
    step: &Transition<'_>,
    columns: Range<usize>,
) -> I::Vector {
    match PER_KEY {
        true => isa.get(&step.decay[columns]),
        false => isa.splat(step.decay[0]),
    }
}

/// Asks for what comes after these floats.
#[inline(always)]
fn fetch_ahead<I: Isa>(isa: I, state: &[f32]) {
    for line in (AHEAD..AHEAD + state.len()).step_by(LINE) {
        isa.fetch(state.as_ptr().wrapping_add(line));
    }
}

/// Rows of any length, of which the first is row `first` of the head.
#[inline(always)]
fn replay_each<I: Isa, const PER_KEY: bool>(
    isa: I,
    path: Path<'_>,
    (first, state): (usize, &mut [f32]),
) {
    let (dim, lanes) = (path.key_dim, I::LANES);
    let vectors = dim / lanes;
    let together = vectors - vectors % TOGETHER;
    for (row, state) in (first..).zip(state.chunks_exact_mut(dim)) {
        for vector in (0..together).step_by(TOGETHER) {
            let at = vector * lanes..(vector + TOGETHER) * lanes;
            advance::<I, TOGETHER, PER_KEY>(isa, path.steps, (row, at), state);
        }
        for vector in together..vectors {
            let at = vector * lanes..(vector + 1) * lanes;
            advance::<I, 1, PER_KEY>(isa, path.steps, (row, at), state);
        }
        if vectors * lanes < dim {
            let at = vectors * lanes..dim;
            advance::<I, 1, PER_KEY>(isa, path.steps, (row, at), state);
        }
    }
}

/// Takes `V` vectors of a row, of which the last may be a part of one, through all steps: `s = s * decay; s = s + key * delta`.
#[inline(always)]
fn advance<I: Isa, const V: usize, const PER_KEY: bool>(
    isa: I,
    steps: &[Transition<'_>],
    (row, at): (usize, Range<usize>),
    state: &mut [f32],
) {
    let state = &mut state[at.clone()];
    fetch_ahead(isa, state);
    let len = state.len();
    let part = |v: usize| v * I::LANES..len.min((v + 1) * I::LANES);
    let mut states = [isa.splat(0.0); V];
    for (v, s) in states.iter_mut().enumerate() {
        *s = isa.get(&state[part(v)]);
    }
    for step in steps {
        let keys = &step.key[at.clone()];
        let delta = isa.splat(step.delta[row]);
        for (v, s) in states.iter_mut().enumerate() {
            let at = at.start + part(v).start..at.start + part(v).end;
            let decay = decay_of::<I, PER_KEY>(isa, step, at);
            *s = isa.mul_add(isa.get(&keys[part(v)]), delta, isa.mul(*s, decay));
        }
    }
    for (v, s) in states.into_iter().enumerate() {
        isa.set(&mut state[part(v)], s);
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::Random;
    use super::*;

    /// Who takes a head through its steps.
    type Replay<I> = fn(I, Path<'_>, &mut [f32]);

    /// The same bits as element by element, for rows and columns that fill no vector and no group of rows.
    fn check<I: Isa, const PER_KEY: bool>(isa: I) {
        for size in [
            (1, 1, 0),
            (1, 1, 1),
            (3, 5, 2),
            (4, 16, 3),
            (9, 37, 8),
            (6, 64, 11),
            (5, 128, 2),
            (3, 256, 4),
        ] {
            check_one::<I, PER_KEY>(isa, replay_rows::<I, PER_KEY>, size);
        }
        // The blocks of machines with many registers, which any other can run too.
        for (rows, kept) in [(4, 3), (9, 2), (3, 1), (16, 8)] {
            let four = (rows, 4 * I::LANES, kept);
            check_one::<I, PER_KEY>(isa, replay_blocks::<I, 4, 4, PER_KEY>, four);
            let eight = (rows, 8 * I::LANES, kept);
            check_one::<I, PER_KEY>(isa, replay_blocks::<I, 2, 8, PER_KEY>, eight);
        }
    }

    fn check_one<I: Isa, const PER_KEY: bool>(
        isa: I,
        replay: Replay<I>,
        (value_dim, key_dim, kept): (usize, usize, usize),
    ) {
        let mut random = Random::new(5);
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
            steps: &steps,
            key_dim,
        };
        let mut after = state.clone();
        replay(isa, path, &mut after);
        for (at, (found, before)) in after.iter().zip(&state).enumerate() {
            let (row, column) = (at / key_dim, at % key_dim);
            let expected = steps.iter().fold(*before, |s, step| {
                let decay = step.decay[column % decays];
                isa.fma(step.key[column], step.delta[row], s * decay)
            });
            let size = format!("{value_dim} x {key_dim}, {kept}");
            assert_eq!(found.to_bits(), expected.to_bits(), "{size}");
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
