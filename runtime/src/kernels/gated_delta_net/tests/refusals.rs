//! What is refused, and what shape inference declares.

use super::super::layout::Heads;
use crate::kernels::testing::assert_same;
use crate::kernels::testing::one_node::{Attr, Bound, Feed, floats, ints, symbols};

use super::case::Case;

/// Feeds a good case with one input replaced and returns the refusal. The bank must be untouched.
fn refusal(change: impl FnOnce(&mut Vec<Feed>)) -> String {
    let heads = Heads {
        keys: 2,
        values: 4,
        key_dim: 8,
        value_dim: 4,
    };
    let mut case = Case::random(7, &[2, 3], heads, ("update", 4));
    case.rows.write = vec![0, -1];
    case.rows.read = vec![1, 6];
    case.rows.counts = vec![2, 0];
    let mut feeds = case.feeds();
    change(&mut feeds);
    let before = feeds[5].floats().to_vec();
    let mut session = case.node().open(&feeds).unwrap();
    let mut outputs = [("output", vec![5, 16], vec![0.0; 80])];
    let result = Bound::new(
        &mut session,
        &mut feeds,
        &[("state", "state_out")],
        &mut outputs,
    )
    .unwrap()
    .run();
    assert_same("bank", feeds[5].floats(), &before);
    result.unwrap_err().to_string()
}

#[test]
fn bad_inputs_are_refused_before_anything_is_written() {
    type Change = fn(&mut Vec<Feed>);
    let cases: [(&str, Change); 12] = [
        ("`qkv` must have the shape [5, 48]", |f| {
            f[0] = floats("qkv", &[5, 47], &[0.0; 235])
        }),
        ("`decay` must have the shape [5, 4]", |f| {
            f[1] = floats("decay", &[4, 4], &[0.0; 16])
        }),
        ("`beta` must have the shape [5, 4]", |f| {
            f[2] = floats("beta", &[5, 5], &[0.0; 25])
        }),
        ("`a_log` must have the shape [4]", |f| {
            f[3] = floats("a_log", &[2], &[0.0; 2])
        }),
        ("`dt_bias` must have the shape [4]", |f| {
            f[4] = floats("dt_bias", &[5], &[0.0; 5])
        }),
        ("multiple of 2 value heads", |f| {
            f[5] = floats("state", &[7, 3, 4, 8], &[0.0; 672])
        }),
        ("cumulative_sequence_lengths", |f| {
            f[6] = ints("cumulative", &[3], &[0, 0, 5])
        }),
        ("`read_rows` of row 1", |f| {
            f[7] = ints("read", &[2], &[1, 7])
        }),
        ("`write_rows` of row 0", |f| {
            f[8] = ints("write", &[2], &[6, -1])
        }),
        ("also by another row", |f| {
            f[8] = ints("write", &[2], &[3, 3])
        }),
        ("also read in this step", |f| {
            f[8] = ints("write", &[2], &[-1, 1])
        }),
        ("`capture_counts` of row 1", |f| {
            f[9] = ints("counts", &[2], &[0, 4])
        }),
    ];
    for (expected, change) in cases {
        let message = refusal(change);
        assert!(message.contains(expected), "{message}, not {expected}");
    }
}

#[test]
fn bad_attributes_are_refused_when_the_session_opens() {
    let heads = Heads {
        keys: 1,
        values: 1,
        key_dim: 8,
        value_dim: 4,
    };
    let case = Case::random(7, &[2], heads, ("none", 0));
    for (name, value) in [
        ("key_heads", Attr::Int(0)),
        ("checkpoint_form", Attr::Text("delta")),
        ("checkpoint_count", Attr::Int(-1)),
    ] {
        let mut node = case.node();
        node.attributes.retain(|attribute| attribute.0 != name);
        let error = node
            .with(name, value)
            .open(&case.feeds())
            .unwrap_err()
            .to_string();
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn outputs_have_inferred_shapes() {
    let heads = Heads {
        keys: 2,
        values: 4,
        key_dim: 8,
        value_dim: 4,
    };
    for (form, slots) in [
        ("update", vec!["checkpoint_slots_4", "read.0", ""]),
        (
            "state",
            vec![
                "checkpoint_slots_4",
                "read.0",
                "state.1",
                "state.2",
                "state.3",
            ],
        ),
    ] {
        let case = Case::random(7, &[2], heads, (form, 4));
        let session = case.node().open(&case.feeds()).unwrap();
        let found: Vec<_> = session
            .outputs()
            .iter()
            .map(|o| symbols(o.dtype()))
            .collect();
        assert_eq!(found[0], ["qkv.0", ""]);
        assert_eq!(found[1], ["state.0", "state.1", "state.2", "state.3"]);
        assert_eq!(found[2], slots);
    }
}
