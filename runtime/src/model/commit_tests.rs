//! Which graphs are opened for a device that the host cannot touch, and what is said where one is missing.

use super::*;
use crate::device::{Distant, HostDevice};
use crate::error::ErrorCode;
use crate::exec::{Wanted, load};
use crate::model::test_onnx::{Attribute, F32, I64, Onnx};
use crate::model::test_toy::{CONFIG, folder};
use std::fs;
use tempfile::TempDir;

const FILE: &str = "commit.onnx";

/// Copies slots of the toy model's checkpoints, two states of `[3, 1]`.
fn graph() -> Onnx {
    Onnx::default()
        .input("bank", F32, "bank_rows 3 1")
        .input("checkpoints", F32, "2 rows 3 1")
        .input("batch_rows", I64, "commits")
        .input("write_rows", I64, "commits")
        .input("slots", I64, "commits")
        .output("committed", F32, "bank_rows 3 1")
        .ints("minus1", &[1], &[-1])
        .node("Unsqueeze", "slots minus1", "slot", &[])
        .node("Unsqueeze", "batch_rows minus1", "row", &[])
        .node("Unsqueeze", "write_rows minus1", "write", &[])
        .node(
            "Concat",
            "slot row",
            "places",
            &[("axis", Attribute::Int(1))],
        )
        .node("GatherND", "checkpoints places", "states", &[])
        .node("ScatterND", "bank write states", "committed", &[])
}

/// The toy model with a commit graph named and written.
fn committed() -> TempDir {
    let folder = folder();
    let form = r#""checkpoint_form": "state""#;
    let named = format!(r#"{form}, "commit_filename": "{FILE}""#);
    let config = CONFIG.replace(form, &named);
    assert_ne!(config, CONFIG);
    fs::write(folder.path().join(CONFIG_FILE), config).unwrap();
    graph().write(folder.path(), FILE);
    folder
}

fn opened(folder: &Path, device: &dyn Device) -> Result<Option<CommitGraphs>, LoadError> {
    let source = Source::read(folder)?;
    commit_graphs(load(Wanted::default())?, &source, Provider::Cpu, device)
}

#[test]
fn graphs_are_opened_where_the_host_cannot_commit() {
    let folder = committed();
    assert!(opened(folder.path(), &HostDevice).unwrap().is_none());
    let graphs = opened(folder.path(), &Distant).unwrap().unwrap();
    assert!(graphs.has(0) && !graphs.has(1));
}

#[test]
fn a_model_that_captures_nothing_needs_none() {
    let folder = folder();
    let config = CONFIG
        .replace(r#", "checkpoints": "checkpoints.%d""#, "")
        .replace(
            r#""checkpoint_count": 2, "checkpoint_alignment": "left", "checkpoint_form": "state""#,
            r#""row_shape": [3, 1]"#,
        );
    fs::write(folder.path().join(CONFIG_FILE), config).unwrap();
    assert!(opened(folder.path(), &Distant).unwrap().is_none());
}

#[test]
fn a_state_that_nothing_commits_is_named() {
    let folder = folder();
    let error = opened(folder.path(), &Distant).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unsupported);
    let message = error.to_string();
    for word in [
        CONFIG_FILE,
        "`past.0.bank` of layer 0",
        "commit_filename",
        "a distant device",
        "--target cuda",
    ] {
        assert!(message.contains(word), "{word}: {message}");
    }
}

#[test]
fn a_graph_that_is_not_there_or_no_graph_is_named() {
    let folder = committed();
    let file = folder.path().join(FILE);
    let message = |code: ErrorCode| {
        let error = opened(folder.path(), &Distant).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        error.to_string()
    };
    graph()
        .node("Nonsense", "bank", "other", &[])
        .write(folder.path(), FILE);
    assert!(message(ErrorCode::GraphInvalid).contains(FILE));
    fs::write(&file, "no graph").unwrap();
    assert!(message(ErrorCode::GraphInvalid).contains(FILE));
    fs::remove_file(&file).unwrap();
    assert!(message(ErrorCode::FileUnreadable).contains(FILE));
}
