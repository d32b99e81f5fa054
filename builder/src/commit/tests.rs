//! What commit graphs are made of. What they compute is tested where ONNX Runtime is, against the files that are
//! compared here: the runtime's tests and the builder meet in `tests/fixtures/commit`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use genai_config_schema::{CheckpointForm, StateDecay, StateOperator};
use proptest::prelude::*;

use super::{Subject, emit, graph};
use crate::fixed_groups::FixedKind;
use crate::graph::ir::{Dim, Dtype, Graph};
use crate::options::{BuildOptions, CheckpointOption, Spelling, Target};
use crate::testing::{hybrid, models, options};

fn subject(operator: StateOperator, row: &[u64], key_heads: Option<u32>) -> Subject {
    Subject {
        kind: FixedKind {
            operator,
            row_shape: row.to_vec(),
            key_heads,
            dtype: Dtype::F32,
        },
        form: CheckpointForm::Update,
        capacity: 8,
        decay: StateDecay::PerHead,
    }
}

fn conv(row: [u64; 2], capacity: u64) -> Subject {
    Subject {
        capacity,
        ..subject(StateOperator::CausalConv, &row, None)
    }
}

fn delta(key_heads: u32, row: [u64; 3], capacity: u64) -> Subject {
    Subject {
        capacity,
        ..subject(StateOperator::GatedDeltaNet, &row, Some(key_heads))
    }
}

fn stored(dtype: Dtype, mut subject: Subject) -> Subject {
    subject.kind.dtype = dtype;
    subject
}

fn per_key(subject: Subject) -> Subject {
    Subject {
        decay: StateDecay::PerKey,
        ..subject
    }
}

fn states(subject: Subject) -> Subject {
    Subject {
        form: CheckpointForm::State,
        ..subject
    }
}

/// File names under `tests/fixtures/commit` and what they commit.
fn fixtures() -> Vec<(&'static str, Subject)> {
    let history = subject(StateOperator::TokenHistory, &[3], None);
    vec![
        ("conv-vector", conv([2, 3], 3)),
        ("conv-1", conv([3, 3], 1)),
        ("conv-3", conv([3, 3], 3)),
        ("conv-8", conv([3, 3], 8)),
        ("conv-8-kernel-2", conv([3, 1], 8)),
        ("conv-8-float16", stored(Dtype::F16, conv([3, 3], 8))),
        ("conv-8-bfloat16", stored(Dtype::Bf16, conv([3, 3], 8))),
        ("delta-vector", delta(1, [2, 2, 2], 3)),
        ("delta-known", delta(2, [4, 2, 3], 2)),
        ("delta-known-per-key", per_key(delta(2, [4, 2, 3], 2))),
        ("delta-1", delta(2, [4, 3, 2], 1)),
        ("delta-3", delta(2, [4, 3, 2], 3)),
        ("delta-8", delta(2, [4, 3, 2], 8)),
        ("delta-8-per-key", per_key(delta(2, [4, 3, 2], 8))),
        ("delta-3-per-key", per_key(delta(2, [4, 3, 2], 3))),
        ("series-conv-8", states(conv([3, 3], 8))),
        ("series-delta-8", states(delta(2, [4, 3, 2], 8))),
        ("history-8", stored(Dtype::I64, history)),
    ]
}

fn fixture(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/commit");
    PathBuf::from(folder).join(format!("{name}.onnx"))
}

fn emitted(subject: &Subject) -> Graph {
    graph("commit.onnx".to_owned(), subject).unwrap()
}

#[test]
fn fixtures_are_what_is_emitted() {
    for (name, subject) in fixtures() {
        let found = std::fs::read(fixture(name)).unwrap_or_default();
        assert!(
            found == crate::onnx::bytes(emitted(&subject)),
            "{name} is stale: run `cargo test -p pawl-builder --lib write_commit_fixtures -- --ignored`"
        );
    }
}

#[test]
#[ignore = "writes the files that `fixtures_are_what_is_emitted` compares"]
fn write_commit_fixtures() {
    for (name, subject) in fixtures() {
        let path = fixture(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, crate::onnx::bytes(emitted(&subject))).unwrap();
    }
}

/// What every provider has had for years, and nothing that decides at run time what runs.
const OPERATORS: [&str; 12] = [
    "Add",
    "Concat",
    "Gather",
    "GatherND",
    "Less",
    "MatMul",
    "Mul",
    "Reshape",
    "ScatterND",
    "Split",
    "Transpose",
    "Where",
];

#[test]
fn only_plain_operators_are_used() {
    for (name, subject) in fixtures() {
        let graph = emitted(&subject);
        assert_eq!(graph.opset, 18, "{name}");
        for node in &graph.nodes {
            assert_eq!(node.domain, "", "{name}: {}", node.name);
            assert!(
                OPERATORS.contains(&node.op_type),
                "{name}: {}",
                node.op_type
            );
        }
        let products = graph.nodes.iter().filter(|node| node.op_type == "MatMul");
        let delta = subject.kind.operator == StateOperator::GatedDeltaNet
            && subject.form == CheckpointForm::Update;
        assert_eq!(products.count(), usize::from(delta), "{name}");
    }
}

fn names(graph: &Graph) -> Vec<&str> {
    graph.inputs.iter().map(|input| &*input.name).collect()
}

#[test]
fn inputs_are_those_of_the_contract() {
    let replay = emitted(&delta(2, [4, 3, 2], 8));
    let rows = ["bank", "batch_rows", "write_rows", "checkpoints"];
    assert_eq!(names(&replay), [&rows[..], &["read_rows", "kept"]].concat());
    let series = emitted(&states(delta(2, [4, 3, 2], 8)));
    assert_eq!(names(&series), [&rows[..], &["slots"]].concat());

    let width = 8 * (4 + 2 * 2 + 4 * 3);
    assert_eq!(
        replay.inputs[3].dims,
        [Dim::Symbol("rows"), Dim::Static(width)]
    );
    assert_eq!(
        series.inputs[3].dims[..3],
        [Dim::Static(8), Dim::Symbol("rows"), Dim::Static(4)]
    );
    for graph in [&replay, &series] {
        assert_eq!(graph.outputs.len(), 1);
        assert_eq!(graph.outputs[0].name, "committed");
        assert_eq!(graph.outputs[0].dims, graph.inputs[0].dims);
    }
}

#[test]
fn strides_come_from_the_capacity() {
    let widths = |decay| {
        let graph = emitted(&Subject {
            decay,
            ..delta(2, [4, 3, 2], 5)
        });
        let split = graph.nodes.iter().find(|node| node.op_type == "Split");
        split.unwrap().inputs[1].clone()
    };
    assert_eq!(widths(StateDecay::PerHead), "integers.20_20_60");
    assert_eq!(widths(StateDecay::PerKey), "integers.40_20_60");
}

#[test]
fn heads_that_do_not_belong_together_are_a_defect() {
    for key_heads in [0, 3] {
        let error = graph("commit.onnx".to_owned(), &delta(key_heads, [4, 3, 2], 8)).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("value heads"), "{message}");
    }
}

fn files(options: &BuildOptions) -> Vec<String> {
    let graphs = emit(&hybrid(), options).unwrap();
    graphs.iter().map(|graph| graph.file.to_string()).collect()
}

#[test]
fn only_a_target_out_of_reach_has_them() {
    let mut options = BuildOptions::default();
    assert_eq!(files(&options), [""; 0]);
    options.target = Target::Cuda;
    assert_eq!(
        files(&options),
        [
            "commit.causal_conv.onnx",
            "commit.causal_conv.2.onnx",
            "commit.gated_delta_net.onnx"
        ]
    );
    options.spelling = Spelling::Genai018;
    assert_eq!(files(&options), [""; 0]);
    options.spelling = Spelling::Pawl;
    options.checkpoints = CheckpointOption::None;
    assert_eq!(files(&options), [""; 0]);
}

proptest! {
    #[test]
    fn every_group_has_the_graph_that_its_layers_need(model in models(), options in options()) {
        let graphs = emit(&model, &options).unwrap();
        let config = crate::config::genai_config(&model, &options, &[], None).unwrap();
        let groups = &config.model.decoder.state_groups;
        let named: Vec<_> = groups.iter().filter_map(|group| group.commit_filename.as_ref()).collect();
        prop_assert_eq!(&named, &graphs.iter().map(|graph| &*graph.file).collect::<Vec<_>>());
        prop_assert_eq!(named.iter().collect::<BTreeSet<_>>().len(), named.len());
        for group in groups {
            let Some(file) = &group.commit_filename else {
                prop_assert!(
                    options.target == Target::Cpu
                        || options.spelling == Spelling::Genai018
                        || group.checkpoint_count.is_none()
                );
                continue;
            };
            let graph = graphs.iter().find(|graph| graph.file == *file).unwrap();
            let row = group.row_shape.iter().map(|extent| Dim::Static(*extent));
            prop_assert!(graph.inputs[0].dims[1..].iter().copied().eq(row));
        }
    }
}
