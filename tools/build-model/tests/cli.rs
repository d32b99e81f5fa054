//! The command as its users see it: options, messages, exit codes, and what is left on disk.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/checkpoints/tiny-python")
}

fn command(input: &Path, output: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_build-model"));
    command
        .arg("--input")
        .arg(input)
        .arg("--output")
        .arg(output)
        .args(more);
    command
}

fn run(input: &Path, output: &Path, more: &[&str]) -> Output {
    command(input, output, more).output().unwrap()
}

fn built(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The message of a run that must be refused.
fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|e| name(e.unwrap()))
        .collect();
    names.sort_unstable();
    names
}

fn world() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn the_shipped_checkpoint_builds_and_the_report_is_json() {
    let world = world();
    let output = world.path().join("models/tiny");
    let report: Value =
        serde_json::from_str(&built(&run(&shipped(), &output, &["--json"]))).unwrap();
    assert_eq!(report["output"], output.to_str().unwrap());
    assert_eq!(report["options"]["dtype"], "f32");
    assert_eq!(report["options"]["checkpoints"], "update:8");
    assert_eq!(report["options"]["spelling"], "pawl");
    assert_eq!(report["warnings"], serde_json::json!([]));
    let verified = report["verified"].as_array().unwrap();
    assert_eq!(
        (verified.len(), &verified[0]["opened_on_cpu"]),
        (2, &Value::Bool(true))
    );
    let files: Vec<_> = report["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["name"].as_str().unwrap())
        .collect();
    assert_eq!(files, names(&output));
    for name in [
        "model.onnx",
        "model.onnx.data",
        "mtp.onnx",
        "genai_config.json",
        "tokenizer.json",
    ] {
        assert!(files.contains(&name), "{name}");
    }
    assert_eq!(names(world.path()), ["models"]);
    assert_eq!(names(&world.path().join("models")), ["tiny"]);
}

#[test]
fn every_option_has_its_effect() {
    let world = world();
    let output = world.path().join("out");
    let config = |more: &[&str]| -> Value {
        built(&run(&shipped(), &output, more));
        serde_json::from_slice(&fs::read(output.join("genai_config.json")).unwrap()).unwrap()
    };
    let plain = config(&["--checkpoints", "none", "--no-mtp", "--max-sequence", "64"]);
    assert_eq!(plain["model"]["context_length"], 64);
    assert!(plain["model"].get("mtp").is_none());
    let text = plain.to_string();
    assert!(!text.contains("checkpoint"), "{text}");
    assert!(!output.join("mtp.onnx").exists());

    let state = config(&[
        "--checkpoints",
        "state:3",
        "--dtype",
        "f32",
        "--target",
        "cpu",
        "--force",
    ]);
    let groups = state["model"]["decoder"]["state_groups"]
        .as_array()
        .unwrap();
    let forms: Vec<_> = groups
        .iter()
        .filter_map(|group| group.get("checkpoint_form"))
        .collect();
    assert_eq!(forms, ["state", "state"]);
    assert!(output.join("mtp.onnx").exists());
}

#[test]
fn combinations_that_cannot_be_built_say_why() {
    for (options, reason) in [
        ("--target cuda --dtype f32", "float16 and bfloat16 only"),
        ("--dtype f16", "compute in float32"),
        ("--dtype bf16 --target cpu", "compute in float32"),
        (
            "--target cuda --checkpoints state:4",
            "transitions, not states",
        ),
        (
            "--target cuda --spelling genai-0.18 --checkpoints state:4",
            "transitions only",
        ),
        (
            "--spelling genai-0.18",
            "does not know Pawl's CPU operators",
        ),
        ("--checkpoints update:9", "update:W (W is 1 to 8)"),
        ("--checkpoints state:0", "update:W (W is 1 to 8)"),
        ("--checkpoints often", "--checkpoints"),
        ("--target tpu", "expected cpu or cuda"),
        ("--dtype int4", "expected f32, f16 or bf16"),
        ("--spelling genai", "expected pawl or genai-0.18"),
        ("--max-sequence 0", "--max-sequence 0"),
        ("--max-sequence -1", "--max-sequence"),
        ("--max-sequence 4294967296", "--max-sequence"),
        ("--max-sequence 99999999", "--max-sequence 99999999"),
        ("--precision high", "--precision"),
        ("--force --force", "--force"),
        ("extra", "extra"),
    ] {
        let world = world();
        let options: Vec<_> = options.split(' ').collect();
        let message = refused(&run(&shipped(), &world.path().join("a/out"), &options));
        assert!(message.contains(reason), "{options:?}: {message}");
        assert_eq!(names(world.path()), Vec::<String>::new(), "{options:?}");
    }
    let alone = Command::new(env!("CARGO_BIN_EXE_build-model"))
        .output()
        .unwrap();
    assert!(refused(&alone).contains("--input"));
}

#[test]
fn an_existing_output_needs_force_and_survives_a_failure() {
    let world = world();
    let output = world.path().join("out");
    built(&run(&shipped(), &output, &["--no-mtp"]));
    let before = names(&output);
    let message = refused(&run(&shipped(), &output, &[]));
    assert!(
        message.contains("out: exists already; --force replaces it"),
        "{message}"
    );

    let missing = world.path().join("missing");
    let message = refused(&run(&missing, &output, &["--force"]));
    assert!(message.contains("missing: cannot be read"), "{message}");
    let broken = world.path().join("broken");
    fs::create_dir(&broken).unwrap();
    fs::copy(shipped().join("config.json"), broken.join("config.json")).unwrap();
    fs::write(broken.join("model.safetensors"), [1, 2, 3]).unwrap();
    let message = refused(&run(&broken, &output, &["--force"]));
    assert!(
        message.contains("model.safetensors: is truncated"),
        "{message}"
    );
    assert_eq!(names(&output), before);
    assert_eq!(names(world.path()), ["broken", "out"]);

    built(&run(&shipped(), &output, &["--force"]));
    assert!(names(&output).len() > before.len());
    fs::remove_file(output.join("genai_config.json")).unwrap();
    let message = refused(&run(&shipped(), &output, &["--force"]));
    assert!(message.contains("not an exported model"), "{message}");
}

#[test]
fn cuda_models_are_verified_as_far_as_a_cpu_can() {
    let world = world();
    for (spelling, dtype) in [("pawl", "f16"), ("pawl", "bf16"), ("genai-0.18", "f16")] {
        let options = [
            "--target",
            "cuda",
            "--spelling",
            spelling,
            "--dtype",
            dtype,
            "--force",
        ];
        let text = built(&run(&shipped(), &world.path().join("out"), &options));
        assert!(
            text.contains("verified: model.onnx") && text.contains("another provider"),
            "{text}"
        );
    }
}

#[test]
fn what_cannot_be_verified_is_not_published() {
    let world = world();
    let output = world.path().join("out");
    let mut command = command(&shipped(), &output, &[]);
    let without = command
        .env("ORT_DYLIB_PATH", world.path().join("none.so"))
        .output()
        .unwrap();
    let message = refused(&without);
    assert!(
        message.contains("could not be verified and was removed"),
        "{message}"
    );
    assert!(message.contains("none.so"), "{message}");
    assert_eq!(names(world.path()), Vec::<String>::new());
}

/// A model like the shipped one with a vocabulary so large, and values of zero, that a build can be
/// caught at work.
fn large(folder: &Path) {
    let vocabulary = 200_000_u64;
    let config = fs::read_to_string(shipped().join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["vocab_size"] = vocabulary.into();
    fs::write(folder.join("config.json"), config.to_string()).unwrap();

    let file = fs::read(shipped().join("model.safetensors")).unwrap();
    let length = usize::try_from(u64::from_le_bytes(file[..8].try_into().unwrap())).unwrap();
    let mut header: Value = serde_json::from_slice(&file[8..8 + length]).unwrap();
    let tensors = header.as_object_mut().unwrap();
    tensors.remove("__metadata__");
    let mut reached = 0;
    for (name, tensor) in tensors {
        if name.contains("embed_tokens") || name.contains("lm_head") {
            tensor["shape"][0] = vocabulary.into();
        }
        let shape = tensor["shape"].as_array().unwrap();
        let elements: u64 = shape
            .iter()
            .map(|extent| extent.as_u64().unwrap())
            .product();
        tensor["dtype"] = "F32".into();
        tensor["data_offsets"] = serde_json::json!([reached, reached + elements * 4]);
        reached += elements * 4;
    }
    let header = header.to_string();
    let prefix = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
    let path = folder.join("model.safetensors");
    fs::write(&path, &prefix).unwrap();
    let file = fs::File::options().append(true).open(path).unwrap();
    file.set_len(prefix.len() as u64 + reached).unwrap();
}

/// Starts a build and kills it while it writes. Returns false where it was too fast to be caught.
fn killed(input: &Path, output: &Path) -> bool {
    let parent = output.parent().unwrap();
    let mut child = command(input, output, &["--force"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let at_work = || {
        let hidden = fs::read_dir(parent)
            .unwrap()
            .flatten()
            .map(|entry| entry.path());
        hidden
            .into_iter()
            .any(|path| path.join("model/model.onnx.data").exists())
    };
    while !at_work() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    !child.wait().unwrap().success()
}

#[test]
fn a_killed_build_leaves_the_old_output_and_no_trace_after_the_next() {
    let (input, world) = (world(), world());
    large(input.path());
    let output = world.path().join("out");
    built(&run(&shipped(), &output, &[]));
    let before = fs::read(output.join("model.onnx.data")).unwrap();
    assert!(
        (0..20).any(|_| killed(input.path(), &output)),
        "never caught at work"
    );
    assert!(fs::read(output.join("model.onnx.data")).unwrap() == before);
    let left: Vec<_> = names(world.path())
        .into_iter()
        .filter(|name| name != "out")
        .collect();
    assert!(
        left.len() == 1 && left[0].starts_with(".out.pawl-"),
        "{left:?}"
    );

    refused(&run(&shipped(), &output, &[]));
    assert_eq!(names(world.path()), ["out"]);
}
