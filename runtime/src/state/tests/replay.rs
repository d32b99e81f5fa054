//! Replay against a fixed vector of known results and against equations in double precision.

use crate::state::replay::{DeltaDims, DeltaTransition, replay_conv, replay_delta};
use proptest::prelude::*;

const DIMS: DeltaDims = DeltaDims {
    value_heads: 2,
    key_heads: 1,
    value_dim: 2,
    key_dim: 2,
};

/// Three transitions as a structure of arrays of capacity 3: decay, key, delta sections.
const CAPSULE: [f32; 24] = [
    0.5, 0.25, 1.0, 0.5, 1.0, 1.0, // decay
    2.0, 3.0, 4.0, 5.0, 1.0, 1.0, // key
    1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 0.0, 0.0, 0.0, 0.0, // delta
];

fn section(start: usize, width: usize, token: usize) -> &'static [f32] {
    &CAPSULE[start..][token * width..][..width]
}

fn delta_after(kept: usize) -> Vec<f32> {
    let mut state = vec![4.0; 8];
    for token in 0..kept {
        let decay = section(0, 2, token);
        let key = section(3 * 2, 2, token);
        let delta = section(3 * 2 + 3 * 2, 4, token);
        replay_delta(&mut state, DIMS, DeltaTransition { decay, key, delta });
    }
    state
}

#[test]
fn known_recurrent_states() {
    assert_eq!(delta_after(1), [4.0, 5.0, 6.0, 8.0, 7.0, 10.0, 9.0, 13.0]);
    let two = [24.0, 30.0, 30.0, 38.0, 31.5, 40.0, 36.5, 46.5];
    assert_eq!(delta_after(2), two);
    assert_eq!(
        delta_after(3),
        two,
        "the third transition has decay 1 and delta 0"
    );
}

#[test]
fn known_convolution_states() {
    let values = [[10.0, 11.0], [20.0, 21.0], [30.0, 31.0]];
    let after = |kept: usize| {
        let mut state = vec![4.0; 6];
        values
            .iter()
            .take(kept)
            .for_each(|values| replay_conv(&mut state, 3, values));
        state
    };
    assert_eq!(after(1), [4.0, 4.0, 10.0, 4.0, 4.0, 11.0]);
    assert_eq!(after(2), [4.0, 10.0, 20.0, 4.0, 11.0, 21.0]);
    assert_eq!(after(3), [10.0, 20.0, 30.0, 11.0, 21.0, 31.0]);
}

#[test]
fn the_bank_layout_is_split_into_decay_key_delta() {
    let dims = DeltaDims {
        value_heads: 4,
        key_heads: 2,
        value_dim: 3,
        key_dim: 5,
    };
    let transition: Vec<f32> = (0..26u8).map(f32::from).collect();
    let split = dims.split(&transition).unwrap();
    assert_eq!(split.decay, &transition[..4]);
    assert_eq!(split.key, &transition[4..14]);
    assert_eq!(split.delta, &transition[14..]);
    assert!(dims.split(&transition[1..]).is_none());
}

/// `(Hk, Hv / Hk, Dv, Dk)` with a state and transitions, at most as many elements as the largest geometry needs.
fn geometry() -> impl Strategy<Value = (DeltaDims, Vec<f32>, Vec<Vec<f32>>)> {
    (1usize..4, 1usize..4, 1usize..5, 1usize..6, 0usize..5).prop_flat_map(
        |(hk, group, dv, dk, n)| {
            let dims = DeltaDims {
                value_heads: hk * group,
                key_heads: hk,
                value_dim: dv,
                key_dim: dk,
            };
            let (state, width) = (dims.state().unwrap(), dims.width().unwrap());
            let floats = |len| prop::collection::vec(-1.0f32..1.0, len);
            (
                Just(dims),
                floats(state),
                prop::collection::vec(floats(width), n),
            )
        },
    )
}

proptest! {
    #[test]
    fn recurrent_replay_follows_the_equation((dims, state, transitions) in geometry()) {
        let DeltaDims { value_heads, key_heads, value_dim, key_dim } = dims;
        let mut found = state.clone();
        for transition in &transitions {
            replay_delta(&mut found, dims, dims.split(transition).unwrap());
        }
        for h in 0..value_heads {
            for v in 0..value_dim {
                for i in 0..key_dim {
                    let at = (h * value_dim + v) * key_dim + i;
                    let mut s = f64::from(state[at]);
                    for t in &transitions {
                        let key = value_heads + (h * key_heads / value_heads) * key_dim + i;
                        let delta = value_heads + key_heads * key_dim + h * value_dim + v;
                        s = s * f64::from(t[h]) + f64::from(t[key]) * f64::from(t[delta]);
                    }
                    prop_assert!((f64::from(found[at]) - s).abs() < 1e-5);
                }
            }
        }
    }

    #[test]
    fn convolution_replay_is_a_window_over_the_samples(
        channels in 1usize..5, history in 1usize..5, kept in 0usize..8, seed: u16,
    ) {
        let sample = |c: usize, p: usize| f32::from(seed) + (c * 100 + p) as f32;
        let mut state: Vec<f32> = (0..channels)
            .flat_map(|c| (0..history).map(move |p| (c, p)))
            .map(|(c, p)| sample(c, p))
            .collect();
        for t in 0..kept {
            let values: Vec<f32> = (0..channels).map(|c| sample(c, history + t)).collect();
            replay_conv(&mut state, history, &values);
        }
        for c in 0..channels {
            for p in 0..history {
                prop_assert_eq!(state[c * history + p], sample(c, p + kept));
            }
        }
    }
}
