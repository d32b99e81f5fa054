//! The graphs that `build-model --target cuda` writes beside the model to commit kept prefixes: named, run on the CPU beside
//! Pawl's own replay of the same transitions, and refused where they leave anything else.

#![allow(
    clippy::unwrap_used,
    reason = "a case stops where its expectations fail"
)]

use pawl::{ErrorCode, LoadError, LoadOptions, Opened, VerifiedGraph, VerifyOptions};
use pawl_builder::{CheckpointOption, Dtype, Target};
use pawl_tests::checkpoint;
use pawl_tests::export::Export;
use std::fs;

const CONV: &str = "commit.causal_conv.onnx";
const DELTA: &str = "commit.gated_delta_net.onnx";

fn cuda(name: &str, dtype: Dtype, slots: u8) -> Export {
    Export::with(&checkpoint(name), |options| {
        options.target = Target::Cuda;
        options.dtype = Some(dtype);
        options.checkpoints = CheckpointOption::Update(slots);
    })
}

fn verified(export: &Export) -> Result<Vec<VerifiedGraph>, LoadError> {
    let report = pawl::verify(export.path(), &VerifyOptions::new())?;
    let graphs = report.graphs.into_iter();
    Ok(graphs
        .filter(|graph| graph.file.starts_with("commit."))
        .collect())
}

/// Every kept length in one run of each graph, banks bound in and out, what is not kept NaN, neighbours untouched.
#[test]
fn the_graphs_of_exports_leave_what_the_host_leaves() {
    let cases: [(&str, &[&str]); 3] = [
        ("qwen3_5-odd", &[CONV, DELTA]),
        ("tiny-python", &[CONV, DELTA]),
        ("lfm2-odd", &[CONV]),
    ];
    for (name, files) in cases {
        for (dtype, slots) in [
            (Dtype::F16, 8),
            (Dtype::Bf16, 8),
            (Dtype::F16, 3),
            (Dtype::F16, 1),
        ] {
            let export = cuda(name, dtype, slots);
            let expected = files
                .iter()
                .map(|file| ((*file).to_owned(), Opened::OnCpu, usize::from(slots)));
            let found = verified(&export).unwrap().into_iter();
            let found = found.map(|graph| (graph.file, graph.opened, graph.replayed));
            assert!(found.eq(expected), "{name} {dtype} {slots}");
            let info = pawl::inspect(export.path(), &LoadOptions::new())
                .unwrap()
                .info;
            let named = info.state_groups.iter();
            let named: Vec<_> = named
                .filter_map(|group| group.commit_graph.as_deref())
                .collect();
            assert_eq!(named, files, "{name} {dtype}");
        }
    }
}

#[test]
fn a_model_without_fixed_state_has_none() {
    assert_eq!(verified(&cuda("llama-odd", Dtype::F16, 8)).unwrap(), []);
}

/// Numbers as a graph has them.
fn numbers(numbers: impl Iterator<Item = u64>) -> Vec<u8> {
    numbers.flat_map(u64::to_le_bytes).collect()
}

/// Changes the last of some numbers in a row, wherever they stand in a graph.
fn change_last(export: &Export, file: &str, row: &[u8], to: u64) {
    let path = export.path().join(file);
    let mut bytes = fs::read(&path).unwrap();
    let places: Vec<usize> = bytes
        .windows(row.len())
        .enumerate()
        .filter_map(|(at, window)| (window == row).then_some(at + row.len() - 8))
        .collect();
    assert!(!places.is_empty(), "{file}");
    for at in places {
        bytes.splice(at..at + 8, to.to_le_bytes()).for_each(drop);
    }
    fs::write(path, bytes).unwrap();
}

/// The interface of the graph is right, what it computes is not.
#[test]
fn a_graph_that_leaves_something_else_is_refused() {
    for (file, row, to) in [(CONV, numbers(0..3), 1), (DELTA, numbers(0..8), 6)] {
        let export = cuda("qwen3_5-odd", Dtype::F16, 8);
        change_last(&export, file, &row, to);
        let error = verified(&export).unwrap_err();
        assert_eq!(error.code(), ErrorCode::GraphInvalid, "{error}");
        let message = error.to_string();
        assert!(
            message.contains(file) && message.contains("differs from that of the host"),
            "{message}"
        );
    }
}

#[test]
fn a_graph_that_is_missing_or_another_one_is_named() {
    let export = cuda("qwen3_5-odd", Dtype::F16, 8);
    let refused = |code: ErrorCode| {
        let error = pawl::verify(export.path(), &VerifyOptions::new()).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        error.to_string()
    };
    fs::copy(export.path().join(DELTA), export.path().join(CONV)).unwrap();
    let message = refused(ErrorCode::ContractMismatch);
    assert!(
        message.contains(CONV) && message.contains("[P12]"),
        "{message}"
    );
    fs::remove_file(export.path().join(CONV)).unwrap();
    let message = refused(ErrorCode::FileUnreadable);
    assert!(message.contains(CONV), "{message}");
}
