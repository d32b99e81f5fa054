use std::fs;
use std::path::Path;

use super::testing::{checkpoint, f32_bytes, raw, safetensors};
use super::*;
use pawl_models::{Transform, WeightPart};

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), "{\"model_type\":\"x\"}").unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn index(map: &[(&str, &str)]) -> String {
    let map: BTreeMap<_, _> = map.iter().copied().collect();
    serde_json::json!({"metadata": {"total_size": 1}, "weight_map": map}).to_string()
}

fn refused(folder: &Path) -> String {
    Checkpoint::open(folder).unwrap_err().to_string()
}

const INDEX: &str = "model.safetensors.index.json";

#[test]
fn shards_are_found_through_the_index() {
    let map = [
        ("a", "one.safetensors"),
        ("b", "two.safetensors"),
        ("c", "one.safetensors"),
    ];
    let folder = folder(&[(INDEX, &index(&map))]);
    let bytes = f32_bytes(&[1.0, 2.0]);
    let tensor = |name| (name, "F32", vec![2], bytes.as_slice());
    safetensors(
        &folder.path().join("one.safetensors"),
        &[tensor("c"), tensor("a")],
    );
    safetensors(
        &folder.path().join("two.safetensors"),
        &[tensor("b"), tensor("extra")],
    );
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let info = checkpoint.info();
    assert_eq!(info.tensors.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(info.tensors["b"], [2]);
    assert_eq!(checkpoint.warnings().len(), 1);
    assert!(checkpoint.warnings()[0].contains("does not list 1 tensors"));
    for stranger in ["three.safetensors", "four.safetensors"] {
        fs::write(folder.path().join(stranger), "").unwrap();
    }
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let warning = &checkpoint.warnings()[0];
    let expected = "does not name four.safetensors, three.safetensors; not used";
    assert!(warning.ends_with(expected), "{warning}");

    safetensors(
        &folder.path().join("two.safetensors"),
        &[tensor("b"), tensor("a")],
    );
    let message = refused(folder.path());
    assert!(
        message.contains("two.safetensors: a: is in ") && message.contains("one.safetensors too")
    );
    safetensors(&folder.path().join("two.safetensors"), &[tensor("d")]);
    assert!(
        refused(folder.path()).contains("weight_map: lists tensors that are not there: b (in two")
    );
    fs::remove_file(folder.path().join("two.safetensors")).unwrap();
    assert!(refused(folder.path()).contains("lacks two.safetensors of the index"));
}

#[test]
fn an_index_stays_in_its_folder() {
    for file in [
        "../a.safetensors",
        "/a.safetensors",
        "x/a.safetensors",
        "..",
        "",
        "./a.safetensors",
        "a\\b.safetensors",
        "config.json",
        "a.safetensors/",
    ] {
        let folder = folder(&[(INDEX, &index(&[("t", file)]))]);
        let message = refused(folder.path());
        assert!(
            message.contains("weight_map.t: is in") && message.contains("not the name"),
            "{message}"
        );
    }
    for (text, problem) in [
        ("", "is not a valid index"),
        ("[]", "is not a valid index"),
        ("{}", "missing field `weight_map`"),
        (r#"{"weight_map":{}}"#, "weight_map: lists no tensors"),
        (r#"{"weight_map":{"a":1}}"#, "a: invalid type"),
        (
            r#"{"weight_map":{"a":"x.safetensors","a":"y.safetensors"}}"#,
            "a appears twice",
        ),
    ] {
        let message = refused(folder(&[(INDEX, text)]).path());
        assert!(
            message.contains(INDEX) && message.contains(problem),
            "{message}"
        );
    }
}

#[test]
fn folders_without_usable_weights_say_what_they_hold() {
    let neither = "holds neither model.safetensors nor model.safetensors.index.json";
    assert!(refused(folder(&[]).path()).ends_with(neither));
    let old = folder(&[("pytorch_model.bin", ""), ("tokenizer.json", "{}")]);
    let message = refused(old.path());
    assert!(
        message.contains(&format!("{neither}, only pytorch_model.bin; save")),
        "{message}"
    );

    assert!(refused(Path::new("/nowhere/at/all")).starts_with("/nowhere/at/all: cannot be read"));
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(refused(file.path()).ends_with("is not a folder"));
    let empty = tempfile::tempdir().unwrap();
    assert!(refused(empty.path()).contains("config.json: cannot be read"));
}

#[test]
fn settings_must_be_objects() {
    for (text, problem) in [
        ("", "not valid JSON"),
        ("{\"a\":}", "not valid JSON"),
        ("[]", "must hold a JSON object"),
        (&"[".repeat(100_000), "not valid JSON"),
    ] {
        let folder = folder(&[("config.json", text)]);
        let message = refused(folder.path());
        assert!(
            message.contains("config.json") && message.contains(problem),
            "{message}"
        );
        fs::write(folder.path().join("config.json"), "{}").unwrap();
        fs::write(folder.path().join("generation_config.json"), text).unwrap();
        let message = refused(folder.path());
        assert!(
            message.contains("generation_config.json") && message.contains(problem),
            "{message}"
        );
    }
    let bytes = folder(&[]);
    fs::write(bytes.path().join("config.json"), b"{\"a\":\"\xFF\"}").unwrap();
    assert!(refused(bytes.path()).contains("config.json: is not UTF-8 text"));
}

#[cfg(unix)]
#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let folder = folder(&[]);
    let pipe = folder.path().join("model.safetensors");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    if !made.is_ok_and(|status| status.success()) {
        return;
    }
    assert!(refused(folder.path()).ends_with("model.safetensors: is not a regular file"));
}

fn weight(tensor: &str, shape: &[u64], rows: std::ops::Range<u64>) -> Weight {
    Weight {
        parts: vec![WeightPart {
            tensor: tensor.to_owned(),
            shape: shape.to_vec(),
            rows,
        }],
        shape: shape.to_vec(),
        transform: Transform::None,
    }
}

#[test]
fn segments_lie_where_the_rows_are() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (f32_bytes(&[0.0; 12]), [0; 6]);
    let tensors = [
        ("a", "F32", vec![4, 3], &*a),
        ("b", "BF16", vec![], &b[..2]),
        ("c", "U8", vec![4], &b[2..]),
    ];
    let checkpoint = checkpoint(folder.path(), &tensors);
    let start = checkpoint.tensors["a"].begin;
    let segment = &checkpoint.segments(&weight("a", &[4, 3], 1..3)).unwrap()[0];
    assert_eq!((segment.begin - start, segment.elements), (12, 6));
    let segment = &checkpoint.segments(&weight("b", &[], 0..1)).unwrap()[0];
    assert_eq!((segment.begin - start, segment.elements), (48, 1));
    assert_eq!(
        checkpoint.segments(&weight("a", &[4, 3], 4..4)).unwrap()[0].elements,
        0
    );

    for (weight, problem) in [
        (weight("x", &[1], 0..1), "x: no such tensor"),
        (
            weight("a", &[3, 4], 0..3),
            "a: has shape [4, 3], expected [3, 4]",
        ),
        (weight("a", &[4, 3], 3..5), "a: has 4 rows; rows 3..5"),
        (weight("a", &[4, 3], 5..5), "a: has 4 rows; rows 5..5"),
        (
            weight("c", &[4], 0..4),
            "c: is U8; weights must be F32, F16 or BF16",
        ),
    ] {
        let message = checkpoint.segments(&weight).unwrap_err().to_string();
        assert!(message.contains(problem), "{message}");
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let bytes = f32_bytes(&[1.0; 64]);
    let checkpoint = checkpoint(folder.path(), &[("w", "F32", vec![64], &bytes)]);
    let segment = checkpoint
        .segments(&weight("w", &[64], 0..64))
        .unwrap()
        .remove(0);
    let mut buffer = [0; 256];
    checkpoint.read(&segment, 0, &mut buffer).unwrap();
    assert_eq!(buffer[..], bytes[..]);
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(100)
        .unwrap();
    let message = checkpoint
        .read(&segment, 0, &mut buffer)
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("model.safetensors: w: cannot be read"),
        "{message}"
    );
}

#[test]
fn a_single_file_wins_over_an_index() {
    let folder = folder(&[(INDEX, "not even read")]);
    raw(&folder.path().join("model.safetensors"), "{}", &[]);
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    assert!(checkpoint.warnings()[0].contains("index.json: not used"));
}

#[test]
fn companions_are_found_and_missed() {
    let bare = folder(&[]);
    let (found, warnings) = companions(bare.path()).unwrap();
    assert_eq!(
        found.iter().map(|file| file.name).collect::<Vec<_>>(),
        ["config.json"]
    );
    for (warning, name) in warnings.iter().zip([
        "tokenizer.json: absent",
        "tokenizer_config.json: absent",
        "chat_template.jinja: absent",
        "generation_config.json: absent",
    ]) {
        assert!(warning.contains(name), "{warning}");
    }
    assert_eq!(warnings.len(), 4);

    let all = folder(&[
        ("tokenizer.json", "{}"),
        ("tokenizer_config.json", "{\"chat_template\":\"{{ x }}\"}"),
        ("generation_config.json", "{}"),
        ("vocab.json", "{}"),
        ("README.md", ""),
    ]);
    let (found, warnings) = companions(all.path()).unwrap();
    assert_eq!((found.len(), warnings.len()), (5, 0));
    fs::remove_file(all.path().join("vocab.json")).unwrap();
    fs::create_dir(all.path().join("vocab.json")).unwrap();
    assert!(
        companions(all.path())
            .unwrap_err()
            .to_string()
            .contains("vocab.json: is not a regular")
    );
}
