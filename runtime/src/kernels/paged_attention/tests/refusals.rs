//! What is refused, and what shape inference declares.

use super::super::reference::Heads;
use crate::kernels::testing::one_node::{Attr, Bound, Feed, absent, floats, ints, symbols};
use crate::kernels::testing::{Random, assert_same};

use super::case::{Case, Shape};

/// Feeds a good case with one input replaced and returns the refusal. The caches must be untouched.
fn refusal(change: impl FnOnce(&mut Vec<Feed>)) -> String {
    let heads = Heads {
        q: 4,
        kv: 2,
        dim: 8,
    };
    let shape = Shape {
        rows: vec![(2, 3), (3, 0)],
        heads,
        block_size: 4,
        half: 4,
        norms: true,
    };
    let mut case = Case::random(7, &shape);
    case.blocks = 6;
    case.max_blocks = 3;
    case.table = vec![4, 2, -1, 0, -1, -1];
    let mut random = Random::new(1);
    case.keys = random.floats(6 * 4 * 16, 1.0);
    case.values = random.floats(6 * 4 * 16, 1.0);
    let mut feeds = case.feeds();
    change(&mut feeds);
    let before = [feeds[1].floats().to_vec(), feeds[2].floats().to_vec()];
    let mut session = case.node().open(&feeds).unwrap();
    let mut outputs = [("output", vec![5, 32], vec![0.0; 160])];
    let in_place = [("keys", "keys_out"), ("values", "values_out")];
    let result = Bound::new(&mut session, &mut feeds, &in_place, &mut outputs)
        .unwrap()
        .run();
    assert_same("keys", feeds[1].floats(), &before[0]);
    assert_same("values", feeds[2].floats(), &before[1]);
    result.unwrap_err().to_string()
}

#[test]
fn bad_inputs_are_refused_before_anything_is_written() {
    type Change = fn(&mut Vec<Feed>);
    let cases: [(&str, Change); 17] = [
        ("`qkv` must have the shape [5, 64]", |f| {
            f[0] = floats("qkv", &[5, 63], &[0.0; 315])
        }),
        ("`key_cache` must have", |f| {
            f[1] = floats("keys", &[6, 4, 1, 8], &[0.0; 192])
        }),
        ("`value_cache` must have", |f| {
            f[2] = floats("values", &[6, 4, 2, 9], &[0.0; 432])
        }),
        ("cumulative_sequence_lengths", |f| {
            f[3] = ints("cumulative", &[3], &[0, 3, 4])
        }),
        ("`past_sequence_lengths` of row 0", |f| {
            f[4] = ints("past", &[2], &[-1, 0])
        }),
        ("`past_sequence_lengths` of row 1", |f| {
            f[4] = ints("past", &[2], &[3, 10])
        }),
        ("`past_sequence_lengths` of row 1", |f| {
            f[4] = ints("past", &[2], &[3, i32::MAX])
        }),
        ("`past_sequence_lengths` must", |f| {
            f[4] = ints("past", &[1], &[3])
        }),
        ("`block_table` of row 0", |f| {
            f[5] = ints("table", &[2, 3], &[4, -1, -1, 0, -1, -1])
        }),
        ("`block_table` of row 1", |f| {
            f[5] = ints("table", &[2, 3], &[4, 2, -1, 6, -1, -1])
        }),
        ("`block_table` of row 1", |f| {
            f[5] = ints("table", &[2, 3], &[4, 2, -1, 0, -2, -1])
        }),
        ("tokens of a row against", |f| {
            f[5] = ints("table", &[2, 0], &[])
        }),
        ("block 2 is written by row 0", |f| {
            f[5] = ints("table", &[2, 3], &[2, 2, -1, 0, -1, -1])
        }),
        ("block 0 is written by row 1", |f| {
            f[5] = ints("table", &[2, 3], &[0, 2, -1, 0, -1, -1])
        }),
        ("`cos` must have the shape [5, 4]", |f| {
            f[6] = floats("cos", &[5, 5], &[0.0; 25])
        }),
        ("`sin` must have the shape [5, 4]", |f| {
            f[7] = floats("sin", &[4, 4], &[0.0; 16])
        }),
        ("`k_norm` must have the shape [8]", |f| {
            f[9] = floats("k_norm", &[16], &[0.0; 16])
        }),
    ];
    for (expected, change) in cases {
        let message = refusal(change);
        assert!(message.contains(expected), "{message}, not {expected}");
    }
}

#[test]
fn a_lone_cosine_is_refused() {
    let message = refusal(|feeds| feeds[7] = absent());
    assert!(message.contains("`sin` is missing"), "{message}");
}

#[test]
fn bad_attributes_are_refused_when_the_session_opens() {
    let heads = Heads {
        q: 4,
        kv: 2,
        dim: 8,
    };
    let shape = Shape {
        rows: vec![(2, 3)],
        heads,
        block_size: 4,
        half: 4,
        norms: true,
    };
    let case = Case::random(7, &shape);
    for (name, value) in [("num_heads", 3), ("num_heads", 0), ("kv_num_heads", -2)] {
        let mut node = case.node();
        node.attributes.retain(|attribute| attribute.0 != name);
        let node = node.with(name, Attr::Int(value));
        let error = node.open(&case.feeds()).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn outputs_have_inferred_shapes() {
    let heads = Heads {
        q: 4,
        kv: 2,
        dim: 8,
    };
    let shape = Shape {
        rows: vec![(2, 3)],
        heads,
        block_size: 4,
        half: 4,
        norms: false,
    };
    let case = Case::random(7, &shape);
    let session = case.node().open(&case.feeds()).unwrap();
    let found: Vec<_> = session
        .outputs()
        .iter()
        .map(|o| symbols(o.dtype()))
        .collect();
    assert_eq!(found[0], ["qkv.0", ""]);
    assert_eq!(found[1], ["keys.0", "keys.1", "keys.2", "keys.3"]);
    assert_eq!(found[2], ["values.0", "values.1", "values.2", "values.3"]);
}
