//! Against the definition in float64, against ONNX Runtime's operators, and against itself.

#![allow(
    clippy::cast_possible_truncation,
    reason = "cases are small and references are rounded to float32 on purpose"
)]

mod case;
mod owed;
mod refusals;

use proptest::prelude::*;

use super::layout::{Decay, Heads};
use super::replay::replay;
use crate::kernels::isa::Level;
use crate::kernels::testing::one_node::{Attr, Bound, OneNode, absent, floats};
use crate::kernels::testing::{Random, SERIAL, Threads, assert_close, assert_same};

use case::{Case, cases, transpose_heads};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn equals_the_definition(case in cases()) {
        case.check(&case.run());
    }

    #[test]
    fn every_instruction_set_equals_the_definition(case in cases()) {
        for level in Level::available() {
            case.check(&case.run_level(level, &SERIAL));
        }
    }

    #[test]
    fn equals_the_packed_operator_of_onnx_runtime(case in cases()) {
        let rows = &case.rows;
        let count = rows.lengths.len();
        let Heads { keys, values, key_dim, value_dim } = case.heads;
        let states: Vec<f32> =
            (0..count).flat_map(|row| rows.source(&case.bank, row).to_vec()).collect();
        let update = if case.form == "update" { case.slots } else { 0 };
        let ours = case.feeds();
        let unit = floats("qkv", &ours[0].shape, &case.unit_keys());
        let node = OneNode::new("com.microsoft", "GatedDeltaNet")
            .with("gate_activation", Attr::Text("softplus"))
            .with("beta_activation", Attr::Text("sigmoid"))
            .with("qk_l2_norm", Attr::Int(0))
            .with("update_rule", Attr::Text("gated_delta"))
            .with("state_update_capacity", Attr::Int(update as i64))
            .giving(if update > 0 { &["output", "state_out", "slots"] } else { &["output", "state_out"] });
        let theirs = node
            .run(&[
                unit,
                absent(),
                absent(),
                ours[6].clone(),
                ours[1].clone(),
                ours[2].clone(),
                floats("state", &[count, values, value_dim, key_dim], &states),
                ours[3].clone(),
                ours[4].clone(),
                if update > 0 { ours[9].clone() } else { absent() },
            ])
            .unwrap();
        let ours = case.run();
        assert_close("output", &ours[0].1, &theirs[0].1, 1e-5);
        let state = case.heads.state();
        let sections = [values, keys * key_dim, values * value_dim];
        for row in 0..count {
            if let Ok(target) = usize::try_from(rows.write[row]) {
                let found = &ours[1].1[target * state..][..state];
                assert_close("state", found, &theirs[1].1[row * state..][..state], 1e-5);
            }
            for t in (0..rows.counts[row] as usize).filter(|_| update > 0) {
                let capsule = &theirs[2].1[row * update * case.slot_len()..];
                let mut expected: Vec<f32> = Vec::new();
                let mut start = 0;
                for width in sections {
                    expected.extend(&capsule[start + t * width..start + (t + 1) * width]);
                    start += update * width;
                }
                assert_close("slot", case.slot(&ours[2].1, row, t), &expected, 1e-5);
            }
        }
    }

    #[test]
    fn equals_the_dense_operator_of_onnx_runtime(case in cases()) {
        let Heads { values, key_dim, value_dim, .. } = case.heads;
        let ours = case.run_kernel(Level::best(), &SERIAL);
        for row in 0..case.rows.lengths.len() {
            let tokens = case.rows.lengths[row];
            let dense = case.only(row).dense(case.rows.source(&case.bank, row));
            let node = OneNode::new("com.microsoft", "LinearAttention")
                .with("q_num_heads", Attr::Int(values as i64))
                .with("kv_num_heads", Attr::Int(values as i64))
                .giving(&["output", "state_out"]);
            let theirs = node.run(&dense).unwrap();
            let width = values * value_dim;
            let found = &ours[0][case.rows.start(row) * width..][..tokens * width];
            assert_close("output", found, &theirs[0].1, 1e-5);
            if let Ok(target) = usize::try_from(case.rows.write[row]) {
                let found = &ours[1][target * case.heads.state()..][..case.heads.state()];
                let theirs = transpose_heads(&theirs[1].1, key_dim, value_dim);
                assert_close("state", found, &theirs, 1e-5);
            }
        }
    }

    #[test]
    fn a_row_does_not_depend_on_its_neighbours_or_on_threads(case in cases()) {
        let width = case.heads.values * case.heads.value_dim;
        let [output, bank, slots] = case.run_kernel(Level::best(), &Threads(3));
        for row in 0..case.rows.lengths.len() {
            let alone = case.only(row);
            let [own_output, own_bank, own_slots] = alone.run_kernel(Level::best(), &SERIAL);
            let start = case.rows.start(row) * width;
            assert_same("output", &output[start..start + own_output.len()], &own_output);
            if let Ok(target) = usize::try_from(case.rows.write[row]) {
                let range = target * case.heads.state()..(target + 1) * case.heads.state();
                assert_same("state", &bank[range.clone()], &own_bank[range]);
            }
            for t in 0..case.rows.counts[row] as usize {
                assert_same("slot", case.slot(&slots, row, t), alone.slot(&own_slots, 0, t));
            }
        }
    }

    #[test]
    fn checkpoints_are_the_states_of_shorter_rows(case in cases()) {
        let [_, _, slots] = case.run_kernel(Level::best(), &SERIAL);
        for row in 0..case.rows.lengths.len() {
            for t in 0..case.rows.counts[row] as usize {
                let expected = case.state_after(row, t + 1);
                if case.form == "state" {
                    assert_same("slot", case.slot(&slots, row, t), &expected);
                    continue;
                }
                let mut replayed = case.rows.source(&case.bank, row).to_vec();
                let transitions = |t| case.slot(&slots, row, t);
                replay((case.heads, Decay::PerHead), transitions, t + 1, (0, &mut replayed));
                if case.rows.lengths[row] <= 16 {
                    assert_same("replayed", &replayed, &expected);
                } else {
                    assert_close("replayed", &replayed, &expected, 1e-6);
                }
            }
        }
    }

    #[test]
    fn works_in_place(case in cases()) {
        let expected = case.run();
        let mut feeds = case.feeds();
        let mut session = case.node().open(&feeds).unwrap();
        let width = case.heads.values * case.heads.value_dim;
        let tokens = case.rows.tokens();
        let mut outputs = [("output", vec![tokens, width], vec![0.0; tokens * width])];
        Bound::new(&mut session, &mut feeds, &[("state", "state_out")], &mut outputs)
            .unwrap()
            .run()
            .unwrap();
        assert_same("output", &outputs[0].2, &expected[0].1);
        assert_same("bank", feeds[5].floats(), &expected[1].1);
    }
}

/// A published vector (2 value heads on 1 key head, 2 x 2 states): an offset computed from the kept
/// count instead of the slot fails it.
#[test]
fn replay_applies_transitions_in_order() {
    let heads = Heads {
        keys: 1,
        values: 2,
        key_dim: 2,
        value_dim: 2,
    };
    let transitions: [&[f32]; 3] = [
        &[0.5, 0.25, 2.0, 3.0, 1.0, 2.0, 3.0, 4.0],
        &[1.0, 0.5, 4.0, 5.0, 5.0, 6.0, 7.0, 8.0],
        &[1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0],
    ];
    for (kept, expected) in [
        (0, [4.0; 8]),
        (1, [4.0, 5.0, 6.0, 8.0, 7.0, 10.0, 9.0, 13.0]),
        (2, [24.0, 30.0, 30.0, 38.0, 31.5, 40.0, 36.5, 46.5]),
    ] {
        let mut state = [4.0; 8];
        let kind = (heads, Decay::PerHead);
        replay(kind, |t| transitions[t], kept, (0, &mut state));
        assert_eq!(state, expected, "{kept} kept");
    }
}

/// Strong and weak decays: products over a chunk underflow or stay near one.
#[test]
fn extreme_gates_equal_the_definition() {
    let heads = Heads {
        keys: 2,
        values: 4,
        key_dim: 32,
        value_dim: 48,
    };
    for (a_log, size) in [(4.0, 20.0), (-8.0, 5.0), (1.0, 60.0)] {
        let mut case = Case::random(11, &[130, 40], heads, ("none", 0));
        let mut random = Random::new(3);
        case.a_log.fill(a_log);
        case.decay = random.floats(case.decay.len(), size);
        case.beta = random.floats(case.beta.len(), size);
        case.check(&case.run_level(Level::best(), &SERIAL));
    }
}

/// Vanishing keys and queries, where the constant under the root decides.
#[test]
fn tiny_keys_equal_the_definition() {
    let heads = Heads {
        keys: 1,
        values: 1,
        key_dim: 16,
        value_dim: 8,
    };
    let mut case = Case::random(5, &[3, 20], heads, ("none", 0));
    case.qkv.iter_mut().for_each(|x| *x *= 3e-4);
    case.check(&case.run_level(Level::best(), &SERIAL));
}

/// Large enough for ONNX Runtime's pool to be used.
#[test]
fn threads_of_onnx_runtime_do_not_change_bits() {
    let heads = Heads {
        keys: 4,
        values: 8,
        key_dim: 64,
        value_dim: 64,
    };
    let case = Case::random(9, &[70, 1, 16, 5], heads, ("update", 8));
    let one = case.run();
    let two = case.node().threads(2).run(&case.feeds()).unwrap();
    assert_same("output", &two[0].1, &one[0].1);
    assert_same("bank", &two[1].1, &one[1].1);
    for row in 0..4 {
        for t in 0..case.rows.counts[row] as usize {
            assert_same(
                "slot",
                case.slot(&two[2].1, row, t),
                case.slot(&one[2].1, row, t),
            );
        }
    }
}

#[test]
fn checkpoints_may_be_left_out() {
    let heads = Heads {
        keys: 2,
        values: 4,
        key_dim: 8,
        value_dim: 4,
    };
    let mut case = Case::random(7, &[2, 3], heads, ("state", 4));
    case.rows.counts = vec![2, 3];
    let all = case.run();
    let node = case.node().giving(&["output", "state_out"]);
    assert_eq!(node.run(&case.feeds()).unwrap(), all[..2]);
    case.rows.counts = vec![0, 0];
    assert_eq!(case.run()[2].0, [0, 2, 4, 4, 8]);
    let uncounted = case.node().run(&case.feeds()[..9]).unwrap();
    assert_eq!(uncounted, case.run());
}
