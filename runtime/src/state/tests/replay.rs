//! What a kept prefix restores on the host, against fixed vectors of known results and equations in double precision.

use crate::device::{Buffer, ElementType};
use crate::model::FixedBuffers;
use crate::model::spec::FixedSpec;
use crate::model::test_specs::{conv, delta, per_key, series, tensor};
use crate::state::StateError;
use crate::state::capture::{CaptureKind, Take};
use crate::state::commit::host::owed;
use crate::state::commit::{Committer, Partial};
use crate::state::pool::Tensor;
use crate::state::select::Source;
use crate::state::test_vectors::{AFTER, AFTER_PER_KEY, BEFORE, DECAYS, DELTAS, KEY_DECAYS, KEYS};
use genai_config_schema::{CheckpointAlignment, StateOperator};
use proptest::prelude::*;

/// Three transitions: decay `[2]`, key `[1, 2]`, delta `[2, 2]`.
const TRANSITIONS: [[f32; 8]; 3] = [
    [0.5, 0.25, 2.0, 3.0, 1.0, 2.0, 3.0, 4.0],
    [1.0, 0.5, 4.0, 5.0, 5.0, 6.0, 7.0, 8.0],
    [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0],
];

fn kind(spec: &FixedSpec) -> CaptureKind {
    CaptureKind::of(spec, spec.checkpoints.as_ref().unwrap()).unwrap()
}

/// A bank of two rows, the second of which is `before`, and the slots of a step of one row; the rest is NaN.
fn buffers(spec: &FixedSpec, before: &[f32], slots: &[&[f32]]) -> FixedBuffers {
    let count = spec.checkpoints.as_ref().unwrap().count;
    let width = slots.first().map_or(0, |slot| slot.len());
    let mut bank = Buffer::host(ElementType::F32, &[2, before.len()]).unwrap();
    let mut staging = Buffer::host(ElementType::F32, &[count, 1, width]).unwrap();
    for buffer in [&mut bank, &mut staging] {
        buffer.as_f32_mut().unwrap().fill(f32::NAN);
    }
    bank.write_row_f32(1, before).unwrap();
    for (index, slot) in slots.iter().enumerate() {
        staging.write_row_f32(index, slot).unwrap();
    }
    FixedBuffers::new(bank, Some(staging))
}

fn commit(
    spec: &FixedSpec,
    source: Source,
    buffers: &mut FixedBuffers,
) -> Result<Vec<f32>, StateError> {
    let tensor = Tensor {
        spec: spec.clone(),
        kind: Some(kind(spec)),
    };
    let partial = Partial {
        batch: 0,
        read: 1,
        write: 1,
        take: kind(spec).take(source),
    };
    let (tensors, rows) = ([tensor], [vec![partial]]);
    let before = buffers.bank.as_bytes().unwrap().to_vec();
    let all = std::slice::from_mut(buffers);
    let prepared = Committer::Host.prepare(&tensors, (1, &rows), all);
    assert!(all[0].bank.as_bytes().unwrap() == before, "{partial:?}");
    buffers.owed = prepared?.remove(0);
    let seen = buffers.row(1).unwrap().unwrap().into_owned();
    assert!(buffers.bank.as_bytes().unwrap() == before, "{partial:?}");
    buffers.settle();
    assert!(buffers.owed.is_empty());
    assert_eq!(buffers.bank.row_bytes(1).unwrap(), seen, "{partial:?}");
    assert!(buffers.bank.row_f32(0).unwrap().iter().all(|x| x.is_nan()));
    Ok(buffers.bank.row_f32(1).unwrap().to_vec())
}

/// The state of `source`, from `before` and `slots`.
fn restored(spec: &FixedSpec, source: Source, before: &[f32], slots: &[&[f32]]) -> Vec<f32> {
    commit(spec, source, &mut buffers(spec, before, slots)).unwrap()
}

/// The state after the first `kept` slots, of which no other is there.
fn after(spec: &FixedSpec, before: &[f32], slots: &[&[f32]], kept: usize) -> Vec<f32> {
    restored(spec, Source::Replay(kept), before, &slots[..kept])
}

#[test]
fn known_recurrent_states() {
    let spec = delta(1, [2, 2, 2], 3);
    let slots: Vec<&[f32]> = TRANSITIONS.iter().map(|slot| &slot[..]).collect();
    let after = |kept| after(&spec, &[4.0; 8], &slots, kept);
    assert_eq!(after(1), [4.0, 5.0, 6.0, 8.0, 7.0, 10.0, 9.0, 13.0]);
    let two = [24.0, 30.0, 30.0, 38.0, 31.5, 40.0, 36.5, 46.5];
    assert_eq!(after(2), two);
    assert_eq!(
        after(3),
        two,
        "the third transition has decay 1 and delta 0"
    );
}

#[test]
fn heads_share_keys_and_have_extents_of_their_own() {
    let by_head = delta(2, [4, 2, 3], 2);
    let by_key = per_key(by_head.clone());
    for kept in 1..=2 {
        let slots = |decays: &[&[f32]]| -> Vec<Vec<f32>> {
            let parts = decays.iter().zip(&KEYS).zip(&DELTAS);
            parts
                .map(|((decay, key), delta)| [decay, &key[..], &delta[..]].concat())
                .collect()
        };
        let check = |spec: &FixedSpec, slots: Vec<Vec<f32>>, expected: &[[f32; 24]]| {
            let slots: Vec<&[f32]> = slots.iter().map(Vec::as_slice).collect();
            assert_eq!(after(spec, &BEFORE, &slots, kept), expected[kept - 1]);
        };
        check(&by_head, slots(&DECAYS.each_ref().map(|d| &d[..])), &AFTER);
        let decays = KEY_DECAYS.each_ref().map(|d| &d[..]);
        check(&by_key, slots(&decays), &AFTER_PER_KEY);
    }
}

#[test]
fn known_convolution_states() {
    let slots: [&[f32]; 3] = [&[10.0, 11.0], &[20.0, 21.0], &[30.0, 31.0]];
    let spec = conv([2, 3], 3);
    let after = |kept| after(&spec, &[4.0; 6], &slots, kept);
    assert_eq!(after(1), [4.0, 4.0, 10.0, 4.0, 4.0, 11.0]);
    assert_eq!(after(2), [4.0, 10.0, 20.0, 4.0, 11.0, 21.0]);
    assert_eq!(after(3), [10.0, 20.0, 30.0, 11.0, 21.0, 31.0]);
}

#[test]
fn a_full_state_is_copied_from_its_slot() {
    let slots: [&[f32]; 3] = [&[1.0, 2.0], &[3.0, 4.0], &[5.0, 6.0]];
    let dense = series(conv([2, 1], 3), CheckpointAlignment::Left);
    assert_eq!(
        restored(&dense, Source::Slot(1), &[9.0, 9.0], &slots),
        [3.0, 4.0]
    );
}

#[test]
fn a_history_is_copied_as_it_was_after_the_last_kept_token() {
    let slots: [&[f32]; 3] = [&[1.0, 2.0], &[2.0, 3.0], &[3.0, 4.0]];
    let spec = tensor(StateOperator::TokenHistory, &[2], 3);
    for (kept, expected) in [(1, [1.0, 2.0]), (2, [2.0, 3.0]), (3, [3.0, 4.0])] {
        assert_eq!(after(&spec, &[0.0, 1.0], &slots, kept), expected);
    }
}

#[test]
fn the_final_state_takes_nothing() {
    for kind in [kind(&conv([2, 3], 3)), kind(&delta(1, [2, 2, 2], 3))] {
        assert_eq!(kind.take(Source::Final), Take::Nothing);
        assert_eq!(kind.take(Source::Replay(2)), Take::Replay(2));
    }
}

#[test]
fn memory_of_other_extents_is_refused() {
    let spec = delta(1, [2, 2, 2], 3);
    let slots: Vec<&[f32]> = TRANSITIONS.iter().map(|slot| &slot[..]).collect();
    let refused = |source, mut buffers: FixedBuffers| {
        let result = commit(&spec, source, &mut buffers);
        assert_eq!(result, Err(StateError::Memory { tensor: 0, row: 0 }));
    };
    refused(Source::Replay(4), buffers(&spec, &[4.0; 8], &slots));
    refused(Source::Replay(0), buffers(&spec, &[4.0; 8], &slots));
    refused(Source::Slot(3), buffers(&spec, &[4.0; 8], &slots));
    refused(Source::Slot(0), buffers(&spec, &[4.0; 9], &slots));
    refused(Source::Replay(1), buffers(&spec, &[4.0; 9], &slots));
    refused(
        Source::Replay(2),
        buffers(&spec, &[4.0; 8], &[&[1.0; 5][..]; 3]),
    );
    let mut absent = buffers(&spec, &[4.0; 8], &slots);
    absent.checkpoints = None;
    refused(Source::Replay(1), absent);
}

/// The first of them would be made and then made over.
#[test]
fn two_rows_are_not_made_in_one_place() {
    let spec = conv([2, 3], 3);
    let (before, slots) = ([4.0; 6], [&[1.0, 2.0][..], &[3.0, 4.0][..]]);
    let all = [buffers(&spec, &before, &slots)];
    let tensors = [Tensor {
        kind: Some(kind(&spec)),
        spec,
    }];
    let row = |batch| Partial {
        batch,
        read: 1,
        write: 1,
        take: Take::Replay(1),
    };
    let refused = owed(&tensors, (2, &[vec![row(0), row(1)]]), &all);
    assert_eq!(refused, Err(StateError::Memory { tensor: 0, row: 1 }));
    owed(&tensors, (2, &[vec![row(1)]]), &all).unwrap();
}

#[test]
fn what_is_copied_is_not_replayed() {
    let dense = kind(&series(conv([2, 1], 3), CheckpointAlignment::Left));
    let history = kind(&tensor(StateOperator::TokenHistory, &[2], 3));
    for kind in [dense, history] {
        assert_eq!(kind.replay(), None);
    }
}

/// Odd geometries with a state and transitions.
fn geometry() -> impl Strategy<Value = (FixedSpec, Vec<f32>, Vec<Vec<f32>>)> {
    let extents = (1usize..4, 1usize..4, 1usize..5, 1usize..6, 1usize..5);
    (extents, any::<bool>()).prop_flat_map(|((keys, group, value_dim, key_dim, n), by_key)| {
        let spec = delta(keys, [keys * group, value_dim, key_dim], n);
        let spec = if by_key { per_key(spec) } else { spec };
        let (state, width) = (spec.row_shape.iter().product(), kind(&spec).width());
        let floats = |len| prop::collection::vec(-1.0f32..1.0, len);
        (
            Just(spec),
            floats(state),
            prop::collection::vec(floats(width), n),
        )
    })
}

proptest! {
    #[test]
    fn recurrent_replay_follows_the_equation((spec, state, transitions) in geometry()) {
        let &[values, value_dim, key_dim] = spec.row_shape.as_slice() else { panic!("three axes") };
        let keys = spec.key_heads.unwrap();
        let slots: Vec<&[f32]> = transitions.iter().map(Vec::as_slice).collect();
        let found = after(&spec, &state, &slots, slots.len());
        let factors = kind(&spec).width() - keys * key_dim - values * value_dim;
        let per_head = factors / values;
        for h in 0..values {
            for v in 0..value_dim {
                for i in 0..key_dim {
                    let at = (h * value_dim + v) * key_dim + i;
                    let mut s = f64::from(state[at]);
                    for t in &transitions {
                        let decay = h * per_head + if per_head == 1 { 0 } else { i };
                        let key = factors + (h * keys / values) * key_dim + i;
                        let delta = factors + keys * key_dim + h * value_dim + v;
                        s = s * f64::from(t[decay]) + f64::from(t[key]) * f64::from(t[delta]);
                    }
                    prop_assert!((f64::from(found[at]) - s).abs() < 1e-5);
                }
            }
        }
    }

    #[test]
    fn convolution_replay_is_a_window_over_the_samples(
        channels in 1usize..5, history in 1usize..5, kept in 1usize..8, seed: u16,
    ) {
        let sample = |c: usize, p: usize| f32::from(seed) + (c * 100 + p) as f32;
        let window = |first: usize| -> Vec<f32> {
            let of = |c| (0..history).map(move |p| sample(c, first + p));
            (0..channels).flat_map(of).collect()
        };
        let values: Vec<Vec<f32>> = (0..kept)
            .map(|t| (0..channels).map(|c| sample(c, history + t)).collect())
            .collect();
        let slots: Vec<&[f32]> = values.iter().map(Vec::as_slice).collect();
        let spec = conv([channels, history], kept);
        prop_assert_eq!(after(&spec, &window(0), &slots, kept), window(kept));
    }
}
