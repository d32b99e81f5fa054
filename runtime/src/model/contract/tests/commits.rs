//! Commit graphs that fit the states of their groups, and every way not to.

use super::*;
use crate::exec::CommitTask;

const CONV: &str = "commit.conv.onnx";
const DELTA: &str = "commit.delta.onnx";

const LISTS: [Line; 4] = [
    ("batch_rows", I64, "commits"),
    ("write_rows", I64, "commits"),
    ("kept", I64, "commits"),
    ("read_rows", I64, "commits"),
];

fn commit_graph(name: &str, bank: &'static str, checkpoints: &'static str) -> GraphFile {
    let inputs = [("bank", F32, bank), ("checkpoints", F32, checkpoints)];
    GraphFile {
        name: name.to_owned(),
        io: GraphIo {
            inputs: inputs.into_iter().chain(LISTS).map(spec).collect(),
            outputs: vec![spec(("committed", F32, bank))],
            ..GraphIo::default()
        },
    }
}

/// The model by rows whose groups name a graph each.
fn committed() -> Case {
    let mut case = rows();
    let group =
        |file: &str| format!(r#""checkpoint_form": "update", "commit_filename": "{file}"}}"#);
    let (conv, delta) = (group(CONV), group(DELTA));
    let config = case
        .config
        .replacen(r#""checkpoint_form": "update"}"#, &conv, 1);
    case.config = config.replacen(r#""checkpoint_form": "update"}"#, &delta, 1);
    case.commits = vec![
        commit_graph(CONV, "bank_rows 32 3", "rows 4 32"),
        commit_graph(DELTA, "bank_rows 4 3 5", "rows 104"),
    ];
    case
}

#[test]
fn graphs_are_told_by_what_they_serve() {
    let contract = committed().check().unwrap();
    let of = |file: &str, tensor| CommitContract {
        file: file.to_owned(),
        task: CommitTask::Replay,
        tensors: vec![tensor],
    };
    assert_eq!(contract.commits, [of(CONV, 0), of(DELTA, 1)]);
    assert_eq!(rows().check().unwrap().commits, []);
}

#[test]
fn every_disagreement_of_a_commit_graph_is_named() {
    let table: &[(usize, Line)] = &[
        (0, ("bank", F16, "bank_rows 32 3")),
        (0, ("bank", F32, "bank_rows 3 32")),
        (0, ("bank", F32, "9 32 3")),
        (0, ("checkpoints", F32, "rows 3 32")),
        (0, ("checkpoints", F32, "4 rows 32")),
        (1, ("checkpoints", F32, "rows 26")),
        (1, ("kept", I32, "commits")),
        (1, ("read_rows", I64, "commits 1")),
        (1, ("committed", F32, "bank_rows 4 5 3")),
    ];
    for (graph, line) in table {
        let mut case = committed();
        set(&mut case.commits[*graph].io, *line);
        let found = case.mismatches();
        let file = [CONV, DELTA][*graph].to_owned();
        assert_eq!(found, [(file, line.0.to_owned(), "P12")], "{line:?}");
    }
}

#[test]
fn what_is_missing_or_too_much_is_named() {
    let mut case = committed();
    case.commits[0]
        .io
        .inputs
        .retain(|input| input.name != "kept");
    case.commits[1]
        .io
        .inputs
        .push(spec(("slots", I64, "commits")));
    case.commits[1].io.outputs.clear();
    let place = |file: &str, name: &str| (file.to_owned(), name.to_owned(), "P12");
    assert_eq!(
        case.mismatches(),
        [
            place(CONV, "kept"),
            place(DELTA, "committed"),
            place(DELTA, "slots")
        ]
    );
}
