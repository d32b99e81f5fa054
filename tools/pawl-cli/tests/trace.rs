//! A trace is recorded and drawn.

#![allow(clippy::unwrap_used, reason = "a case stops where its set-up fails")]

mod common;

use common::{assert_refused, model, text};
use serde_json::Value;
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
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let trace: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
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
    let written = folder.path().join("trace.html");
    let told = format!("wrote `{}`\n", written.display());
    assert_eq!(text(&drawn.stderr), told);
    let page = std::fs::read_to_string(written).unwrap();
    assert!(page.contains("<svg") && page.contains("class=\"accepted\""));
    let other = folder.path().join("other.html");
    assert!(
        pawl(&["trace", file, "--out", other.to_str().unwrap()])
            .status
            .success()
    );
    assert_eq!(std::fs::read_to_string(other).unwrap(), page);
}

/// The lines of the boxes of a page: steps in, kind and number of every draft.
fn boxes(page: &str) -> Vec<Vec<(usize, &str, usize)>> {
    page.split("class=\"tree\"").skip(1).map(lines).collect()
}

fn lines(tree: &str) -> Vec<(usize, &str, usize)> {
    fn between<'a>(line: &'a str, start: &str, end: &str) -> &'a str {
        let (_, rest) = line.split_once(start).unwrap();
        rest.split_once(end).unwrap().0
    }
    let lines = tree.split("class=\"line\"").skip(1);
    let line = |line| {
        let indent = between(line, "margin-left: ", "em").parse().unwrap();
        let number = between(line, "data-node=\"", "\"").parse().unwrap();
        (indent, between(line, "class=\"", "\""), number)
    };
    lines.map(line).collect()
}

#[test]
fn a_tree_is_drawn_with_every_draft_under_its_parent() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    let (model, file) = (model().to_str().unwrap(), file.to_str().unwrap());
    let prompt = ["--prompt", "def main():\n    return 1\n\ndef main():\n"];
    let generate = [
        "generate",
        "--model",
        model,
        "--max-new-tokens",
        "32",
        "--trace",
        file,
    ];
    let trees = ["--speculation", "tree", "--draft-policy", "fixed"];
    let output = pawl(&[&generate[..], &prompt, &trees].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(pawl(&["trace", file]).status.success());
    let page = std::fs::read_to_string(folder.path().join("trace.html")).unwrap();
    let trace: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let steps = trace["steps"].as_array().unwrap().iter();
    let rows = steps.flat_map(|step| step["rows"].as_array().unwrap());
    let trees = rows.filter(|row| row["branches"] != 0);
    let trees: Vec<&Value> = trees.collect();
    let (boxes, mut kept_a_branch) = (boxes(&page), false);
    assert!(boxes.len() == trees.len() && boxes.len() > 3);
    for (lines, row) in boxes.iter().zip(trees) {
        let drafted = row["drafted"].as_array().unwrap();
        let mut numbers: Vec<usize> = lines.iter().map(|(.., number)| *number).collect();
        let (mut open, mut kept) = (Vec::new(), Vec::new());
        for (indent, kind, number) in lines {
            open.truncate(*indent);
            let above = drafted[*number]["parent"].as_u64();
            assert_eq!(open.last().map(|node| *node as u64), above, "{row}");
            open.push(*number);
            if *kind == "accepted" {
                assert_eq!(kept.last().map(|node| *node as u64), above, "{row}");
                kept.push(*number);
            }
        }
        numbers.sort_unstable();
        assert_eq!(numbers, (0..drafted.len()).collect::<Vec<_>>());
        let tokens = kept.iter().map(|node| &drafted[*node]["token"]["id"]);
        let drawn = row["drawn"].as_array().unwrap().iter();
        let drawn = drawn.take(kept.len()).map(|token| &token["id"]);
        assert_eq!(row["accepted"], kept.len());
        assert!(tokens.eq(drawn), "{row}");
        kept_a_branch |= row["winner"] != 0;
    }
    assert!(kept_a_branch);
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
