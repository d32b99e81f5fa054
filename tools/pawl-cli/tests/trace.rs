//! A trace is recorded and drawn.

#![allow(clippy::unwrap_used, reason = "a case stops where its set-up fails")]

mod common;

use common::{assert_refused, model, text};
use std::process::{Command, Output};

fn pawl(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pawl"));
    let command = command.args(args).env("PAWL_COST_FOLDER", "off");
    command.output().unwrap()
}

#[test]
fn a_generation_is_recorded_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    let (model, file) = (model().to_str().unwrap(), file.to_str().unwrap());
    let output = pawl(&[
        "generate",
        "--model",
        model,
        "--prompt",
        "def main():\n    return 1\n\ndef main():\n",
        "--json",
        "--max-new-tokens",
        "24",
        "--ignore-eos",
        "--draft-policy",
        "fixed",
        "--speculation",
        "mtp",
        "--trace",
        file,
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let rows: Vec<_> = trace["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| &s["rows"][0])
        .collect();
    let drawn = rows.iter().flat_map(|row| row["drawn"].as_array().unwrap());
    let drawn: Vec<_> = drawn.map(|token| &token["id"]).collect();
    assert_eq!(
        drawn,
        printed["tokens"]
            .as_array()
            .unwrap()
            .iter()
            .collect::<Vec<_>>()
    );
    let accepted: u64 = rows
        .iter()
        .map(|row| row["accepted"].as_u64().unwrap())
        .sum();
    assert_eq!(
        accepted,
        printed["stats"]["speculation"]["accepted"]
            .as_u64()
            .unwrap()
    );
    assert!(accepted > 0);

    let drawn = pawl(&["trace", file]);
    assert!(drawn.status.success(), "{}", text(&drawn.stderr));
    let page = std::fs::read_to_string(folder.path().join("trace.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("class=\"accepted\""));
    let other = folder.path().join("other.html");
    assert!(
        pawl(&["trace", file, "--out", other.to_str().unwrap()])
            .status
            .success()
    );
    assert_eq!(std::fs::read_to_string(other).unwrap(), page);
}

#[test]
fn a_damaged_trace_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    let file = path.to_str().unwrap();
    assert_refused(&pawl(&["trace", file]), &["t.json"]);
    for (content, part) in [
        ("", "line 1, column 0: the file ends before the trace does"),
        ("{\"version\": 9}", "version: expected 1, found 9"),
        (
            "{\"version\": 1}",
            "is not a trace, which `pawl generate --trace` writes: line 1, column 14: the key `model` is missing",
        ),
    ] {
        std::fs::write(&path, content).unwrap();
        assert_refused(&pawl(&["trace", file]), &["t.json", part]);
    }
    assert_refused(
        &pawl(&["trace", folder.path().to_str().unwrap()]),
        &["is not a regular file"],
    );
    assert_refused(&pawl(&["trace", file, "--out", file]), &["--out"]);
    assert!(!folder.path().join("t.html").exists());
}
