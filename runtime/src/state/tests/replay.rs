//! What a kept prefix restores, against a fixed vector of known results and equations in double precision.

use crate::kernels::Heads;
use crate::state::Source;
use crate::state::capture::CaptureKind;
use proptest::prelude::*;

const HEADS: Heads = Heads {
    keys: 1,
    values: 2,
    key_dim: 2,
    value_dim: 2,
};

/// Three transitions: decay `[2]`, key `[1, 2]`, delta `[2, 2]`.
const TRANSITIONS: [[f32; 8]; 3] = [
    [0.5, 0.25, 2.0, 3.0, 1.0, 2.0, 3.0, 4.0],
    [1.0, 0.5, 4.0, 5.0, 5.0, 6.0, 7.0, 8.0],
    [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0],
];

/// The state of `source`, from `before` and `slots`; what is not made is NaN.
fn restored(kind: CaptureKind, source: Source, before: &[f32], slots: &[&[f32]]) -> Vec<f32> {
    let mut into = vec![f32::NAN; before.len()];
    kind.restore(source, before, |t| slots.get(t).copied(), &mut into)
        .expect("fitting extents");
    into
}

#[test]
fn known_recurrent_states() {
    let slots: Vec<&[f32]> = TRANSITIONS.iter().map(|slot| &slot[..]).collect();
    let after = |kept| {
        restored(
            CaptureKind::Delta(HEADS),
            Source::Replay(kept),
            &[4.0; 8],
            &slots,
        )
    };
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
fn known_convolution_states() {
    let slots: [&[f32]; 3] = [&[10.0, 11.0], &[20.0, 21.0], &[30.0, 31.0]];
    let kind = CaptureKind::Append { channels: 2 };
    let after = |kept| restored(kind, Source::Replay(kept), &[4.0; 6], &slots);
    assert_eq!(after(1), [4.0, 4.0, 10.0, 4.0, 4.0, 11.0]);
    assert_eq!(after(2), [4.0, 10.0, 20.0, 4.0, 11.0, 21.0]);
    assert_eq!(after(3), [10.0, 20.0, 30.0, 11.0, 21.0, 31.0]);
}

#[test]
fn a_full_state_is_copied_from_its_slot() {
    let slots: [&[f32]; 3] = [&[1.0, 2.0], &[3.0, 4.0], &[5.0, 6.0]];
    let of = |source| restored(CaptureKind::Dense, source, &[9.0, 9.0], &slots);
    assert_eq!(of(Source::Slot(1)), [3.0, 4.0]);
    assert_eq!(
        of(Source::Replay(3)),
        [5.0, 6.0],
        "the last kept token's state"
    );
}

#[test]
fn memory_of_other_extents_is_refused() {
    let slots: [&[f32]; 1] = [&[1.0; 8]];
    let restore = |kind: CaptureKind, source, before: usize, into: usize| {
        let (before, mut into) = (vec![0.0; before], vec![0.0; into]);
        kind.restore(source, &before, |t| slots.get(t).copied(), &mut into)
    };
    let delta = CaptureKind::Delta(HEADS);
    assert_eq!(restore(delta, Source::Replay(1), 8, 8), Some(()));
    assert_eq!(
        restore(delta, Source::Replay(2), 8, 8),
        None,
        "a slot that is not there"
    );
    assert_eq!(
        restore(delta, Source::Replay(0), 8, 8),
        None,
        "nothing kept"
    );
    assert_eq!(restore(delta, Source::Replay(1), 8, 7), None);
    assert_eq!(restore(delta, Source::Replay(1), 9, 9), None);
    assert_eq!(restore(CaptureKind::Dense, Source::Slot(0), 7, 7), None);
    assert_eq!(
        restore(CaptureKind::Append { channels: 4 }, Source::Replay(1), 8, 8),
        None
    );
    assert_eq!(
        restore(delta, Source::Final, 1, 1),
        Some(()),
        "nothing to do"
    );
}

/// Odd geometries with a state and transitions.
fn geometry() -> impl Strategy<Value = (Heads, Vec<f32>, Vec<Vec<f32>>)> {
    (1usize..4, 1usize..4, 1usize..5, 1usize..6, 1usize..5).prop_flat_map(
        |(keys, group, value_dim, key_dim, n)| {
            let values = keys * group;
            let heads = Heads {
                keys,
                values,
                key_dim,
                value_dim,
            };
            let (state, width) = (values * value_dim * key_dim, heads.transition().width());
            let floats = |len| prop::collection::vec(-1.0f32..1.0, len);
            (
                Just(heads),
                floats(state),
                prop::collection::vec(floats(width), n),
            )
        },
    )
}

proptest! {
    #[test]
    fn recurrent_replay_follows_the_equation((heads, state, transitions) in geometry()) {
        let Heads { keys, values, key_dim, value_dim } = heads;
        let slots: Vec<&[f32]> = transitions.iter().map(Vec::as_slice).collect();
        let source = Source::Replay(slots.len());
        let found = restored(CaptureKind::Delta(heads), source, &state, &slots);
        for h in 0..values {
            for v in 0..value_dim {
                for i in 0..key_dim {
                    let at = (h * value_dim + v) * key_dim + i;
                    let mut s = f64::from(state[at]);
                    for t in &transitions {
                        let key = values + (h * keys / values) * key_dim + i;
                        let delta = values + keys * key_dim + h * value_dim + v;
                        s = s * f64::from(t[h]) + f64::from(t[key]) * f64::from(t[delta]);
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
        let kind = CaptureKind::Append { channels };
        prop_assert_eq!(restored(kind, Source::Replay(kept), &window(0), &slots), window(kept));
    }
}
