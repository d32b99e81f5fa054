//! Where weights may lie.

use super::*;
use crate::model::graph_io::{ExternalData, Initializer};

fn weight(name: &str, location: &str, offset: u64, length: u64) -> Initializer {
    Initializer {
        name: name.to_owned(),
        data_type: DataType::F32,
        dims: vec![5, 8],
        external: Some(ExternalData {
            location: location.to_owned(),
            offset,
            length: Some(length),
        }),
    }
}

#[test]
fn weights_must_lie_below_the_folder() {
    let table = [
        ("data", 32, 160, None),
        ("./data", 32, 160, None),
        ("data", u64::MAX, 160, Some("far beyond the end")),
        ("data", 0, 159, Some("shorter than its shape")),
        ("../data", 0, 160, Some("outside")),
        ("/etc/passwd", 0, 160, Some("absolute")),
        ("", 0, 160, Some("empty")),
    ];
    for (location, offset, length, wrong) in table {
        let mut case = Case::new();
        fs::write(case.folder.path().join("data"), [0; 192]).unwrap();
        case.decoder
            .io
            .initializers
            .push(weight("w", location, offset, length));
        let found = case.mismatches();
        let expected = wrong.map(|_| ("model.onnx".to_owned(), "w".to_owned(), "P5"));
        assert_eq!(found, Vec::from_iter(expected), "{location} {wrong:?}");
        if wrong.is_none() {
            let contract = case.check().unwrap();
            let sizes: Vec<_> = contract.data_files.iter().map(|file| file.1).collect();
            assert_eq!(sizes, [192]);
        }
    }
}

#[test]
fn weights_of_branches_and_of_commit_graphs_must_lie_there_too() {
    let mut case = Case::new();
    let inner = weight("inner", "../data", 0, 160);
    case.decoder.io.inner.push(inner);
    let mut commit = GraphFile {
        name: "commit.onnx".to_owned(),
        io: GraphIo::default(),
    };
    commit.io.initializers.push(weight("c", "/data", 0, 160));
    case.commits.push(commit);
    let found = case.mismatches();
    let place = |graph: &str, name: &str| (graph.to_owned(), name.to_owned(), "P5");
    assert_eq!(
        found,
        [place("model.onnx", "inner"), place("commit.onnx", "c")]
    );
}

#[test]
fn long_names_and_long_lists_are_shortened() {
    let mut case = Case::new();
    for _ in 0..2000 {
        let name = "n".repeat(20_000);
        case.decoder
            .io
            .initializers
            .push(weight(&name, &"../".repeat(9_000), 0, 160));
    }
    let error = case.check().unwrap_err();
    assert_eq!(error.mismatches.len(), 1000);
    let message = error.to_string();
    assert!(message.ends_with("and 936 more"), "{message}");
    assert!(message.len() < 100_000, "{}", message.len());
}

/// Weights of both graphs in `data`, which ends at 352, and one of the head in `own`.
fn two_files(data: Option<usize>) -> String {
    let mut case = Case::new();
    let write = |name: &str, length| fs::write(case.folder.path().join(name), vec![0; length]);
    write("own", 160).unwrap();
    if let Some(length) = data {
        write("data", length).unwrap();
    }
    let decoder = &mut case.decoder.io.initializers;
    decoder.extend([weight("a", "data", 192, 160), weight("b", "data", 0, 160)]);
    let head = &mut case.head.io.initializers;
    head.extend([weight("a", "data", 192, 160), weight("c", "own", 0, 160)]);
    match case.check() {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_data_file_that_is_missing_or_of_another_length_is_named_once() {
    assert_eq!(two_files(Some(352)), "");
    for (length, found) in [
        (None, "missing"),
        (Some(351), "351 bytes long"),
        (Some(0), "0 bytes long"),
        (Some(353), "353 bytes long"),
        (Some(4096), "4096 bytes long"),
    ] {
        let message = two_files(length);
        let line = format!("model.onnx: `data` is {found}, expected 352 bytes long [P5]");
        assert!(message.ends_with(&format!(": {line}")), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn shared_weights_must_be_what_the_graphs_declare() {
    let entry = |shape: &str, offset: u64| {
        format!(
            r#""shared_initializers": [{{"name": "w", "data_file": "data", "offset": "{offset}", "length": "160",
             "data_type": 1, "shape": {shape}}}], "#
        )
    };
    let cases = [
        (entry("[5, 8]", 32), 32, None),
        (entry("[8, 5]", 32), 32, Some("P6")),
        (entry("[5, 8]", 0), 32, Some("P6")),
    ];
    for (entry, offset, code) in cases {
        let mut case = Case::new();
        fs::write(case.folder.path().join("data"), [0; 192]).unwrap();
        case.config = CONFIG.replace(
            r#""captures_in_mixed"#,
            &format!("{entry}\"captures_in_mixed"),
        );
        case.decoder
            .io
            .initializers
            .push(weight("w", "data", offset, 160));
        let found = case.mismatches();
        assert_eq!(
            found.iter().map(|m| m.2).collect::<Vec<_>>(),
            Vec::from_iter(code),
            "{found:?}"
        );
    }
    let mut case = Case::new();
    case.config = CONFIG.replace(
        r#""captures_in_mixed"#,
        &format!("{}\"captures_in_mixed", entry("[5, 8]", 0)),
    );
    assert_eq!(case.mismatches(), [("model.onnx".into(), "w".into(), "P6")]);
}
