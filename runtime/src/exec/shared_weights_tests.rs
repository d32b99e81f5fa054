//! Two sessions over one mapping, and every place where a weight cannot lie.

use super::*;
use crate::exec::bound_run::BoundRun;
use crate::exec::{Session, SessionSettings, Wanted, load};
use crate::model::Provider;
use crate::model::test_onnx::{Attribute, F32, I64, Onnx};
use std::fs;
use std::num::NonZeroUsize;
use std::sync::Arc;

const ROWS: usize = 40;
const COLUMNS: usize = 24;
const START: u64 = 64;
const BYTES: usize = ROWS * COLUMNS * 4;
const LENGTH: u64 = BYTES as u64;

/// A graph that looks rows up in the table and multiplies them with it, as a tied model does.
fn write_graph(folder: &Path, name: &str, weight: &str) {
    Onnx::default()
        .input("ids", I64, "tokens")
        .output("logits", F32, "tokens 40")
        .external(
            weight,
            &[ROWS as u64, COLUMNS as u64],
            ("data", START, LENGTH),
        )
        .node("Gather", &format!("{weight} ids"), "x", &[])
        .node(
            "Gemm",
            &format!("x {weight}"),
            "logits",
            &[("transB", Attribute::Int(1))],
        )
        .write(folder, name);
}

fn table() -> Vec<f32> {
    (0..ROWS * COLUMNS)
        .map(|i| ((i * 37 % 101) as f32 - 50.0) / 64.0)
        .collect()
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let values = table();
    let bytes = values.iter().flat_map(|value| value.to_le_bytes());
    let file: Vec<u8> = std::iter::repeat_n(0xff, 64).chain(bytes).collect();
    fs::write(folder.path().join("data"), file).unwrap();
    write_graph(folder.path(), "a.onnx", "embedding");
    write_graph(folder.path(), "b.onnx", "head");
    folder
}

fn tensor(folder: &Path, graph: &str, name: &str) -> SharedTensor {
    SharedTensor {
        graph: graph.to_owned(),
        name: name.to_owned(),
        file: folder.join("data"),
        offset: START,
        length: LENGTH,
        data_type: DataType::F32,
        shape: vec![ROWS as u64, COLUMNS as u64],
    }
}

fn open(folder: &Path, graph: &str, weights: &Arc<SharedWeights>) -> BoundRun {
    let settings = SessionSettings {
        provider: Provider::Cpu,
        threads: NonZeroUsize::new(1),
        operators: None,
        optimize: genai_config_schema::GraphOptimizationLevel::All,
        arena: true,
        entries: Vec::new(),
    };
    let loaded = load(Wanted::default()).unwrap();
    let session = Session::open(
        loaded,
        &folder.join(graph),
        settings,
        Some((weights, graph)),
    )
    .unwrap();
    BoundRun::new(session, vec!["ids".into()], vec!["logits".into()]).unwrap()
}

fn logits(run: &mut BoundRun, ids: &[i64]) -> Vec<f32> {
    let mut out = vec![0.0; ids.len() * ROWS];
    let input = TensorValue::input(ids, &[ids.len()]).unwrap();
    let output = TensorValue::output(&mut out, &[ids.len(), ROWS]).unwrap();
    run.run(&[&input], &[(0, &output)]).unwrap();
    drop(output);
    out
}

#[test]
fn sessions_read_the_mapping_and_outlive_its_first_owner() {
    let folder = folder();
    let path = folder.path();
    load(Wanted::default()).unwrap();
    let weights = vec![
        tensor(path, "a.onnx", "embedding"),
        tensor(path, "b.onnx", "head"),
    ];
    let weights = Arc::new(SharedWeights::map(weights).unwrap());
    let mut sessions = [
        open(path, "a.onnx", &weights),
        open(path, "b.onnx", &weights),
    ];
    drop(weights);
    let table = table();
    let row = |id: usize| table.chunks(COLUMNS).nth(id).unwrap();
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    for run in &mut sessions {
        let found = logits(run, &[7, 0]);
        for (token, id) in [7, 0].into_iter().enumerate() {
            for other in 0..ROWS {
                let (found, expected) = (found[token * ROWS + other], dot(row(id), row(other)));
                assert!((found - expected).abs() < 1e-4, "{found} {expected}");
            }
        }
    }
}

#[test]
fn a_weight_is_really_taken_from_the_mapping() {
    let folder = folder();
    load(Wanted::default()).unwrap();
    // The graph's own data says something else: only a given value can explain the result.
    let other = folder.path().join("other");
    fs::write(&other, [0; 64 + BYTES]).unwrap();
    let zero = SharedTensor {
        file: other,
        ..tensor(folder.path(), "a.onnx", "embedding")
    };
    let weights = Arc::new(SharedWeights::map(vec![zero]).unwrap());
    assert!(
        logits(&mut open(folder.path(), "a.onnx", &weights), &[7])
            .iter()
            .all(|value| *value == 0.0)
    );
}

#[test]
fn a_value_that_is_only_read_cannot_be_an_output() {
    let folder = folder();
    load(Wanted::default()).unwrap();
    let weights = Arc::new(SharedWeights::map(Vec::new()).unwrap());
    let mut run = open(folder.path(), "a.onnx", &weights);
    let ids = [1i64];
    let (input, values) = (TensorValue::input(&ids, &[1]).unwrap(), [0f32; ROWS]);
    let output = TensorValue::input(&values, &[1, ROWS]).unwrap();
    let error = run.run(&[&input], &[(0, &output)]).unwrap_err();
    assert!(error.message().contains("only read"), "{error}");
    assert!(run.run(&[], &[]).is_err());
    assert!(run.run(&[&input], &[(1, &input)]).is_err());
    assert!(TensorValue::input(&ids, &[2]).is_err());
    assert!(TensorValue::input(&ids, &[usize::MAX, 2]).is_err());
}

#[test]
fn places_where_no_such_weight_can_lie_are_refused() {
    let folder = folder();
    load(Wanted::default()).unwrap();
    type Change = fn(&mut SharedTensor);
    let changes: [(Change, &str); 6] = [
        (|t| t.offset += 4, "beyond the end"),
        (|t| t.offset = u64::MAX, "beyond the end"),
        (|t| t.offset -= 3, "not a multiple of 4"),
        (|t| t.length -= 4, "does not have"),
        (|t| t.shape = vec![u64::MAX, 2], "does not have"),
        (|t| t.data_type = DataType(99), "does not have"),
    ];
    for (change, part) in changes {
        let mut tensor = tensor(folder.path(), "a.onnx", "embedding");
        change(&mut tensor);
        let message = SharedWeights::map(vec![tensor]).unwrap_err().to_string();
        assert!(
            message.contains(part) && message.contains("`embedding`"),
            "{message}"
        );
    }
    let mut missing = tensor(folder.path(), "a.onnx", "embedding");
    missing.file = folder.path().join("missing");
    assert!(matches!(
        SharedWeights::map(vec![missing]),
        Err(WeightsError::File { .. })
    ));
}
