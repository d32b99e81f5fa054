//! Applying captured transitions to a committed state.

#![allow(unsafe_code)]
#![expect(
    clippy::indexing_slicing,
    reason = "extents are those of the layer, checked at the entry"
)]

use super::super::isa::{Isa, Level, versioned};
use super::layout::{Decay, Heads};
use super::recurrent::transit;

/// The state after the first `kept` captured transitions, with the arithmetic of the recurrence.
///
/// `state` and `into` are `[values, value_dim, key_dim]`; `transitions(t)` is the captured transition
/// of local token `t`, laid out as [`Heads::transition_of`] says.
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
    for (head, (into, state)) in into
        .chunks_exact_mut(len)
        .zip(state.chunks_exact(len))
        .enumerate()
    {
        into.copy_from_slice(state);
        for t in 0..kept {
            let transition = transitions(t);
            let step = Transition {
                decay: &transition[layout.decay(head)],
                key: &transition[layout.key(heads.key_head(head))],
                delta: &transition[layout.delta(head)],
            };
            match decay {
                Decay::PerHead => replay_head(level, step, into),
                Decay::PerKey => replay_columns(level, step, into),
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Transition<'a> {
    decay: &'a [f32],
    key: &'a [f32],
    delta: &'a [f32],
}

versioned!(fn replay_head(step: Transition<'_>, state: &mut [f32]) => replay_body);

versioned!(fn replay_columns(step: Transition<'_>, state: &mut [f32]) => replay_columns_body);

#[inline(always)]
fn replay_body<I: Isa>(isa: I, step: Transition<'_>, state: &mut [f32]) {
    for (row, &delta) in state.chunks_exact_mut(step.key.len()).zip(step.delta) {
        transit(isa, row, step.decay[0], step.key, delta);
    }
}

#[inline(always)]
fn replay_columns_body<I: Isa>(isa: I, step: Transition<'_>, state: &mut [f32]) {
    for (row, &delta) in state.chunks_exact_mut(step.key.len()).zip(step.delta) {
        for ((s, &k), &decay) in row.iter_mut().zip(step.key).zip(step.decay) {
            *s = isa.fma(k, delta, *s * decay);
        }
    }
}
