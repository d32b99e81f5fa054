//! What is refused, and what shape inference declares.

use crate::kernels::testing::assert_same;
use crate::kernels::testing::one_node::{Attr, Bound, Feed, floats, ints, symbols};

use super::case::Case;

/// Feeds a good case with one input replaced and returns the refusal. The bank must be untouched.
fn refusal(change: impl FnOnce(&mut Vec<Feed>)) -> String {
    let mut case = Case::random(7, &[2, 3], (8, 3), ("state", 4));
    case.rows.write = vec![0, -1];
    case.rows.read = vec![1, 6];
    case.rows.counts = vec![2, 0];
    let mut feeds = case.feeds();
    change(&mut feeds);
    let before = feeds[3].floats().to_vec();
    let mut session = case.node().open(&feeds).unwrap();
    let mut outputs = [("y", vec![5, 8], vec![0.0; 40])];
    let result = Bound::new(
        &mut session,
        &mut feeds,
        &[("state", "state_out")],
        &mut outputs,
    )
    .unwrap()
    .run();
    assert_same("bank", feeds[3].floats(), &before);
    result.unwrap_err().to_string()
}

#[test]
fn bad_inputs_are_refused_before_anything_is_written() {
    type Change = fn(&mut Vec<Feed>);
    let cases: [(&str, Change); 14] = [
        ("cumulative_sequence_lengths", |f| {
            f[4] = ints("cumulative", &[3], &[0, 2, 6])
        }),
        ("cumulative_sequence_lengths", |f| {
            f[4] = ints("cumulative", &[3], &[0, 2, 4])
        }),
        ("cumulative_sequence_lengths", |f| {
            f[4] = ints("cumulative", &[3], &[1, 2, 5])
        }),
        ("cumulative_sequence_lengths", |f| {
            f[4] = ints("cumulative", &[3], &[0, 5, 5])
        }),
        ("cumulative_sequence_lengths", |f| {
            f[4] = ints("cumulative", &[3], &[0, -1, 5])
        }),
        ("`read_rows` of row 1", |f| {
            f[5] = ints("read", &[2], &[1, 7])
        }),
        ("`read_rows` of row 0", |f| {
            f[5] = ints("read", &[2], &[-1, 6])
        }),
        ("`read_rows` must have the shape", |f| {
            f[5] = ints("read", &[1], &[1])
        }),
        ("`write_rows` of row 0", |f| {
            f[6] = ints("write", &[2], &[6, -1])
        }),
        ("`write_rows` of row 1", |f| {
            f[6] = ints("write", &[2], &[0, -2])
        }),
        ("also by another row", |f| {
            f[6] = ints("write", &[2], &[0, 0])
        }),
        ("also read in this step", |f| {
            f[6] = ints("write", &[2], &[-1, 1])
        }),
        ("`capture_counts` of row 0", |f| {
            f[7] = ints("counts", &[2], &[3, 0])
        }),
        ("`capture_counts` of row 1", |f| {
            f[7] = ints("counts", &[2], &[0, -1])
        }),
    ];
    for (expected, change) in cases {
        let message = refusal(change);
        assert!(message.contains(expected), "{message}, not {expected}");
    }
    let long = refusal(|f| {
        f[4] = ints("cumulative", &[2], &[0, 5]);
        f[5] = ints("read", &[1], &[1]);
        f[6] = ints("write", &[1], &[0]);
        f[7] = ints("counts", &[1], &[1]);
    });
    assert!(long.contains("tokens of a captured row"), "{long}");
    let shape = refusal(|f| f[3] = floats("state", &[7, 8, 3], &[0.0; 168]));
    assert!(
        shape.contains("`state` must have the shape [bank_rows, 8, 2]"),
        "{shape}"
    );
}

#[test]
fn bad_attributes_are_refused_when_the_session_opens() {
    let case = Case::random(7, &[2], (8, 3), ("none", 0));
    for (name, value) in [
        ("activation", Attr::Text("relu")),
        ("checkpoint_form", Attr::Text("delta")),
        ("checkpoint_count", Attr::Int(9)),
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
    let case = Case::random(7, &[2], (8, 3), ("state", 4));
    let session = case.node().open(&case.feeds()).unwrap();
    let symbols: Vec<String> = session
        .outputs()
        .iter()
        .map(|o| format!("{:?}", symbols(o.dtype())))
        .collect();
    assert_eq!(
        symbols,
        [
            r#"["x.0", "x.1"]"#,
            r#"["state.0", "state.1", "state.2"]"#,
            r#"["checkpoint_slots_4", "read.0", "state.1", "state.2"]"#,
        ]
    );
}
