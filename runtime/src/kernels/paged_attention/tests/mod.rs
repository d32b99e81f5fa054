//! Against the definition in float64, against ONNX Runtime's operator, and against itself.

#![allow(
    clippy::cast_possible_truncation,
    reason = "cases are small and references are rounded to float32 on purpose"
)]

mod case;
mod refusals;

use proptest::prelude::*;

use super::reference::{self, Heads};
use crate::kernels::isa::Level;
use crate::kernels::testing::one_node::{Attr, Bound, OneNode};
use crate::kernels::testing::{SERIAL, Threads, assert_close, assert_same};

use case::{Case, Shape, cases, shapes};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn equals_the_definition(case in cases()) {
        case.check(&case.run());
    }

    #[test]
    fn every_instruction_set_equals_the_definition(case in cases()) {
        for level in Level::available() {
            let found = case.run_kernel(level, &SERIAL).map(|data| (vec![], data));
            case.check(&found);
        }
    }

    #[test]
    fn equals_the_operator_of_onnx_runtime(
        seed: u64,
        shape in shapes().prop_map(|shape| {
            // The operator wants heads of a multiple of 16 where it rotates.
            let dim = shape.heads.dim.next_multiple_of(16);
            let half = if shape.half == 0 { 0 } else { dim / 2 };
            Shape { heads: Heads { dim, ..shape.heads }, half, norms: false, ..shape }
        }),
    ) {
        let mut case = Case::random(seed, &shape);
        let (cos, sin) = case.rotate_by_position(seed);
        let [output, ..] = case.run_kernel(Level::best(), &SERIAL);
        for row in 0..case.lengths.len() {
            let node = OneNode::new("com.microsoft", "GroupQueryAttention")
                .with("num_heads", Attr::Int(case.heads.q as i64))
                .with("kv_num_heads", Attr::Int(case.heads.kv as i64))
                .with("scale", Attr::Float(case.shaping.scale as f32))
                .with("do_rotary", Attr::Int(i64::from(shape.half > 0)))
                .giving(&["output", "keys", "values"]);
            let theirs = node.run(&case.dense(row, (&cos, &sin))).unwrap();
            let width = case.heads.q * case.heads.dim;
            let found = &output[case.start(row) * width..][..case.lengths[row] * width];
            assert_close("output", found, &theirs[0].1, 1e-5);
        }
    }

    #[test]
    fn a_row_does_not_depend_on_its_neighbours_or_on_threads(case in cases()) {
        let width = case.heads.q * case.heads.dim;
        let [output, keys, values] = case.run_kernel(Level::best(), &Threads(3));
        for row in 0..case.lengths.len() {
            let alone = case.only(row);
            let [own_output, own_keys, own_values] = alone.run_kernel(Level::best(), &SERIAL);
            let start = case.start(row) * width;
            assert_same("output", &output[start..start + own_output.len()], &own_output);
            for t in 0..case.lengths[row] {
                let width = case.heads.kv * case.heads.dim;
                let slot = case.slot(row, case.past[row] as usize + t) * width;
                assert_same("keys", &keys[slot..slot + width], &own_keys[slot..slot + width]);
                assert_same("values", &values[slot..slot + width], &own_values[slot..slot + width]);
            }
        }
    }

    /// Verifying drafts computes what decoding computes.
    #[test]
    fn a_short_row_equals_its_tokens_one_by_one(case in cases()) {
        let width = case.heads.q * case.heads.dim;
        for level in Level::available() {
            let [output, ..] = case.run_kernel(level, &SERIAL);
            for row in (0..case.lengths.len()).filter(|row| case.lengths[*row] <= 16) {
                let mut before = case.clone();
                for t in 0..case.lengths[row] {
                    let [alone, keys, values] = before.part(row, t..t + 1).run_kernel(level, &SERIAL);
                    (before.keys, before.values) = (keys, values);
                    let start = (case.start(row) + t) * width;
                    assert_same("output", &output[start..start + width], &alone);
                }
            }
        }
    }

    #[test]
    fn works_in_place(case in cases()) {
        let expected = case.run();
        let mut feeds = case.feeds();
        let mut session = case.node().open(&feeds).unwrap();
        let shape = expected[0].0.clone();
        let mut outputs = [("output", shape, vec![0.0; expected[0].1.len()])];
        let in_place = [("keys", "keys_out"), ("values", "values_out")];
        Bound::new(&mut session, &mut feeds, &in_place, &mut outputs).unwrap().run().unwrap();
        assert_same("output", &outputs[0].2, &expected[0].1);
        let bits = |of: &[f32]| of.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(feeds[1].floats()), bits(&expected[1].1));
        assert_eq!(bits(feeds[2].floats()), bits(&expected[2].1));
    }
}

/// Rows that share full blocks of a common prefix, as a tree of drafts does.
#[test]
fn rows_share_blocks_that_nobody_writes() {
    let heads = Heads {
        q: 4,
        kv: 2,
        dim: 16,
    };
    let shape = Shape {
        rows: vec![(3, 8), (2, 8)],
        heads,
        block_size: 4,
        half: 8,
        norms: true,
    };
    let mut case = Case::random(5, &shape);
    let (max, shared) = (case.max_blocks, case.table[..2].to_vec());
    case.table[max..max + 2].copy_from_slice(&shared);
    case.check(&case.run());
}

/// Large scores: exponentials of differences only.
#[test]
fn large_scores_equal_the_definition() {
    let heads = Heads {
        q: 2,
        kv: 1,
        dim: 32,
    };
    let shape = Shape {
        rows: vec![(40, 50), (1, 200)],
        heads,
        block_size: 16,
        half: 0,
        norms: false,
    };
    let mut case = Case::random(5, &shape);
    case.qkv.iter_mut().for_each(|x| *x *= 30.0);
    case.shaping.scale = 0.25;
    let [output, ..] = case.run_kernel(Level::best(), &SERIAL);
    for row in 0..2 {
        let alone = case.only(row);
        let (keys, values) = case.cached(row);
        let expected = reference::row(heads, &alone.qkv, &alone.shaping, (&keys, &values)).output;
        let start = case.start(row) * 64;
        // Scores are in the thousands, so their rounding alone moves a weight by 1e-4 or so.
        assert_close(
            "output",
            &output[start..start + expected.len()],
            &expected,
            1e-2,
        );
    }
}

/// Large enough for ONNX Runtime's pool to be used.
#[test]
fn threads_of_onnx_runtime_do_not_change_bits() {
    let heads = Heads {
        q: 8,
        kv: 2,
        dim: 64,
    };
    let rows = vec![(70, 130), (1, 300), (8, 0)];
    let case = Case::random(
        9,
        &Shape {
            rows,
            heads,
            block_size: 32,
            half: 16,
            norms: true,
        },
    );
    let one = case.run();
    let two = case.node().threads(2).run(&case.feeds()).unwrap();
    assert_same("output", &two[0].1, &one[0].1);
}
