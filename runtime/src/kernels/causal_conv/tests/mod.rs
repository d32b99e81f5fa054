//! Against the definition in float64, against ONNX Runtime's operator, and against itself.

#![allow(
    clippy::cast_possible_truncation,
    reason = "cases are small and references are rounded to float32 on purpose"
)]

mod case;
mod refusals;

use proptest::prelude::*;

use super::kernel::replay;
use crate::kernels::isa::Level;
use crate::kernels::testing::one_node::{Attr, Bound, OneNode, absent, floats};
use crate::kernels::testing::{SERIAL, Threads};
use crate::kernels::testing::{assert_close, assert_same};

use case::{Case, cases};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn equals_the_definition(case in cases()) {
        case.check(&case.run());
    }

    #[test]
    fn every_instruction_set_equals_the_definition(case in cases()) {
        let shape = |slots: usize| vec![slots, case.rows.lengths.len()];
        for level in Level::available() {
            let capturing = case.rows.counts.iter().any(|&count| count > 0);
            let slots = if capturing { case.slots } else { 0 };
            let [y, bank, found] = case.run_kernel(level, &SERIAL);
            case.check(&[(vec![], y), (vec![], bank), (shape(slots), found)]);
        }
    }

    #[test]
    fn equals_the_operator_of_onnx_runtime(case in cases()) {
        let rows = &case.rows;
        let count = rows.lengths.len();
        let states: Vec<f32> =
            (0..count).flat_map(|row| rows.source(&case.bank, row).to_vec()).collect();
        let update = if case.form == "update" { case.slots } else { 0 };
        let mut feeds = case.feeds();
        let (x, bias, cumulative) = (feeds[0].clone(), feeds[2].clone(), feeds[4].clone());
        let weight = floats("weight", &[case.channels, 1, case.width], &case.weight);
        let state = floats("state", &[count, case.channels, case.width - 1], &states);
        let counts = if update > 0 { feeds.remove(7) } else { absent() };
        let node = OneNode::new("com.microsoft", "VarlenCausalConvWithState")
            .with("activation", Attr::Text(if case.silu { "silu" } else { "none" }))
            .with("state_update_capacity", Attr::Int(update as i64))
            .giving(if update > 0 { &["y", "state_out", "slots"] } else { &["y", "state_out"] });
        let theirs = node.run(&[x, weight, cumulative, bias, state, counts]).unwrap();
        let ours = case.run();
        assert_close("y", &ours[0].1, &theirs[0].1, 5e-6);
        for row in 0..count {
            if let Ok(target) = usize::try_from(rows.write[row]) {
                let len = case.state_len();
                let state = &ours[1].1[target * len..][..len];
                assert_same("state", state, &theirs[1].1[row * len..][..len]);
            }
            for t in (0..rows.counts[row] as usize).filter(|_| update > 0) {
                let theirs = &theirs[2].1[(row * update + t) * case.channels..][..case.channels];
                assert_same("slot", case.slot(&ours[2].1, row, t), theirs);
            }
        }
    }

    #[test]
    fn a_row_does_not_depend_on_its_neighbours_or_on_threads(case in cases()) {
        let [y, bank, slots] = case.run_kernel(Level::best(), &Threads(3));
        for row in 0..case.rows.lengths.len() {
            let alone = case.only(row);
            let [own_y, own_bank, own_slots] = alone.run_kernel(Level::best(), &SERIAL);
            let start = case.rows.start(row) * case.channels;
            assert_same("y", &y[start..start + own_y.len()], &own_y);
            if let Ok(target) = usize::try_from(case.rows.write[row]) {
                let range = target * case.state_len()..(target + 1) * case.state_len();
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
                replay(case.channels, |t| case.slot(&slots, row, t), t + 1, &mut replayed);
                assert_same("replayed", &replayed, &expected);
            }
        }
    }

    #[test]
    fn works_in_place(case in cases()) {
        let expected = case.run();
        let mut feeds = case.feeds();
        feeds[1] = feeds[1].clone().constant();
        let mut session = case.node().open(&feeds).unwrap();
        let mut outputs = [("y", vec![case.rows.tokens(), case.channels], vec![0.0; case.x.len()])];
        Bound::new(&mut session, &mut feeds, &[("state", "state_out")], &mut outputs)
            .unwrap()
            .run()
            .unwrap();
        assert_same("y", &outputs[0].2, &expected[0].1);
        assert_same("bank", feeds[3].floats(), &expected[1].1);
    }
}

#[test]
fn replaying_nothing_changes_nothing() {
    let mut state = vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    replay(2, |_| &[], 0, &mut state);
    assert_eq!(state, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
}

/// The vector of the convolution in `replay`'s contract: 2 channels, 3 samples, 3 transitions.
#[test]
fn replay_appends_samples() {
    let samples: [&[f32]; 3] = [&[10.0, 11.0], &[20.0, 21.0], &[30.0, 31.0]];
    for (kept, expected) in [
        (1, [4.0, 4.0, 10.0, 4.0, 4.0, 11.0]),
        (2, [4.0, 10.0, 20.0, 4.0, 11.0, 21.0]),
        (3, [10.0, 20.0, 30.0, 11.0, 21.0, 31.0]),
    ] {
        let mut state = [4.0; 6];
        replay(2, |t| samples[t], kept, &mut state);
        assert_eq!(state, expected, "{kept} kept");
    }
}

/// Large enough for ONNX Runtime's pool to be used.
#[test]
fn threads_of_onnx_runtime_do_not_change_bits() {
    let case = Case::random(9, &[70, 1, 16, 5], (1000, 4), ("update", 8));
    let one = case.run();
    let two = case.node().threads(2).run(&case.feeds()).unwrap();
    assert_same("y", &two[0].1, &one[0].1);
    assert_same("bank", &two[1].1, &one[1].1);
}

#[test]
fn checkpoints_may_be_left_out() {
    let mut case = Case::random(7, &[2, 3], (8, 3), ("update", 4));
    case.rows.counts = vec![2, 3];
    let all = case.run();
    let some = case
        .node()
        .giving(&["y", "state_out"])
        .run(&case.feeds())
        .unwrap();
    assert_eq!(some, all[..2]);
    case.rows.counts = vec![0, 0];
    assert_eq!(case.run()[2].0, [0, 2, 8]);
    let uncounted = case.node().run(&case.feeds()[..7]).unwrap();
    assert_eq!(uncounted, case.run());
}

#[test]
fn a_step_of_no_rows_does_nothing() {
    let case = Case::random(7, &[], (8, 3), ("update", 4));
    let found = case.run();
    assert_eq!(found[0].0, [0, 8]);
    assert_eq!(found[1].1, case.bank);
}
