//! `pawl inspect` as a caller meets it. Nothing here may need ONNX Runtime.

#![allow(clippy::unwrap_used, reason = "a case stops where its set-up fails")]

use pawl_builder::{BuildOptions, BuildRequest, CheckpointOption, Target};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
}

/// An export of the shipped checkpoint.
fn export(change: impl FnOnce(&mut BuildOptions)) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let input = workspace().join("models/checkpoints/tiny-python");
    let mut options = BuildOptions::default();
    change(&mut options);
    let request = BuildRequest::new(input, folder.path().join("model"), options);
    let staged = pawl_builder::build(&request, &mut ()).unwrap();
    let (model, _) = staged.publish().unwrap();
    (folder, model)
}

/// Runs the command where no ONNX Runtime can be found.
fn inspect(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pawl"))
        .arg("inspect")
        .args(args)
        .env("ORT_DYLIB_PATH", "/no/such/library")
        .output()
        .unwrap()
}

fn printed(args: &[&str]) -> String {
    let output = inspect(args);
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&printed(&[args, &["--json"]].concat())).unwrap()
}

fn refused(args: &[&str]) -> String {
    let output = inspect(args);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn configuration_state_and_memory_are_shown_without_onnx_runtime() {
    let (_folder, model) = export(|_| ());
    let shown = printed(&[model.to_str().unwrap()]);
    for part in [
        "qwen3_5_text: 8 layers (6 linear_attention, 2 full_attention)",
        "float32, on CPU",
        "vocabulary 2048",
        "Gated DeltaNet of layers [0, 1, 2, 4, 5, 6]: float32 [",
        "bank, checkpoints update:8 left",
        "key/value cache of layers [3, 7]",
        "drafting head `mtp.onnx`: 1 layer,",
        "engine: 16 requests, 2048 tokens per step",
        "speculative: max_draft_tokens 7",
        "checkpoint staging, 16 rows",
        "total",
    ] {
        assert!(shown.contains(part), "`{part}` is not in: {shown}");
    }
    assert!(!shown.contains("cannot be loaded"), "{shown}");
}

#[test]
fn the_object_has_what_the_text_has() {
    let (_folder, model) = export(|options| options.checkpoints = CheckpointOption::State(3));
    let object = json(&[model.to_str().unwrap()]);
    let info = &object["info"];
    assert_eq!(info["model_type"], "qwen3_5_text");
    assert_eq!(
        (&info["provider"], &info["element_type"]),
        (&"CPU".into(), &"float32".into())
    );
    assert_eq!(info["head"]["file"], "mtp.onnx");
    assert_eq!(info["limits"]["requests"], 16);
    assert_eq!(info["speculative"]["max_draft_tokens"], 2);
    let groups = info["state_groups"].as_array().unwrap();
    let forms: Vec<_> = groups
        .iter()
        .map(|group| {
            let word = |key: &str| group[key].as_str().unwrap_or("-").to_owned();
            (
                word("layout"),
                word("checkpoint_form"),
                word("checkpoint_alignment"),
            )
        })
        .collect();
    let own = |layout: &str, form: &str, alignment: &str| {
        (layout.to_owned(), form.to_owned(), alignment.to_owned())
    };
    assert_eq!(
        forms,
        [
            own("paged", "-", "-"),
            own("bank", "state", "left"),
            own("bank", "state", "right")
        ]
    );
    let entries = object["memory"]["entries"].as_array().unwrap();
    let sum: u64 = entries
        .iter()
        .map(|entry| entry["bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(object["memory"]["total"], sum);
    assert_eq!(object["obstacle"], Value::Null);
}

#[test]
fn a_model_for_another_provider_is_shown() {
    let (_folder, model) = export(|options| options.target = Target::Cuda);
    let object = json(&[model.to_str().unwrap()]);
    assert_eq!(object["info"]["provider"], "CUDA device 0");
    assert_eq!(object["info"]["element_type"], "float16");
    let groups = object["info"]["state_groups"].as_array().unwrap();
    let types: Vec<_> = groups.iter().map(|group| &group["element_type"]).collect();
    assert_eq!(types, ["float16", "float16", "float32"]);
    assert_eq!(groups[1]["layout"], "rows");
    assert!(object["obstacle"].as_str().unwrap().contains("CUDA"));
    let shown = printed(&[model.to_str().unwrap()]);
    assert!(
        shown.contains("cannot be loaded here: CUDA device 0"),
        "{shown}"
    );
}

/// A configuration that asks for more cache than any machine has.
#[test]
fn a_model_that_does_not_fit_in_memory_is_shown() {
    let (_folder, model) = export(|_| ());
    let file = model.join("genai_config.json");
    let config = std::fs::read_to_string(&file).unwrap();
    let large = config.replace(
        "\"block_size\"",
        "\"num_blocks\": 4000000000, \"block_size\"",
    );
    assert_ne!(large, config);
    std::fs::write(&file, large).unwrap();
    let object = json(&[model.to_str().unwrap()]);
    assert_eq!(object["memory"]["kv_blocks"], 4_000_000_000_u64);
    if Path::new("/proc/meminfo").exists() {
        assert!(
            object["obstacle"]
                .as_str()
                .unwrap()
                .contains("does not fit")
        );
    }
}

#[test]
fn damaged_data_is_named_in_one_line() {
    let (_folder, model) = export(|_| ());
    let data = model.join("model.onnx.data");
    let whole = std::fs::read(&data).unwrap();
    let length = format!("expected {} bytes long", whole.len());
    let check = |found: &str| {
        let message = refused(&[model.to_str().unwrap()]);
        for part in ["`model.onnx.data` is ", found, &length] {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert_eq!(message.lines().count(), 1, "{message}");
    };
    std::fs::write(&data, &whole[..1000]).unwrap();
    check("1000 bytes long");
    std::fs::write(&data, [&whole[..], &[0]].concat()).unwrap();
    check(&format!("{} bytes long", whole.len() + 1));
    std::fs::remove_file(&data).unwrap();
    check("missing");
}

/// What is planned from the configuration alone is what a loaded model would take.
#[test]
fn a_plan_from_the_configuration_alone_agrees_with_the_graphs() {
    for (option, window, key) in [
        (CheckpointOption::Update(8), "8", "update_checkpoints"),
        (CheckpointOption::State(3), "3", "state_checkpoints"),
    ] {
        let (_folder, model) = export(|options| options.checkpoints = option);
        let memory = json(&[model.to_str().unwrap()])["memory"].clone();
        let bytes = |purpose: &str| {
            let mut entries = memory["entries"].as_array().unwrap().iter();
            let entry =
                entries.find(|entry| entry["purpose"].as_str().unwrap().starts_with(purpose));
            entry.unwrap()["bytes"].clone()
        };
        let alone = tempfile::tempdir().unwrap();
        let file = alone.path().join("genai_config.json");
        std::fs::copy(model.join("genai_config.json"), &file).unwrap();
        let plan = json(&["--plan", file.to_str().unwrap(), "--window", window]);
        assert_eq!(plan["all_requests"]["banks"], bytes("fixed state"));
        assert_eq!(plan["all_requests"][key], bytes("checkpoint staging"));
        let token = plan["cache"]["token"].as_u64().unwrap();
        let blocks = memory["kv_blocks"].as_u64().unwrap() * memory["block_size"].as_u64().unwrap();
        assert_eq!(bytes("key/value cache, "), token * blocks);
    }
}

#[test]
fn the_state_of_a_large_hybrid_is_planned_from_one_file() {
    let file = workspace().join("tests/fixtures/plans/hybrid-64-layers.json");
    let file = file.to_str().unwrap();
    let plan = json(&["--plan", file]);
    let one = &plan["per_request"];
    let bytes = |key: &str| one[key].as_u64().unwrap();
    assert_eq!(bytes("committed"), 153_944_064);
    assert_eq!(bytes("state_checkpoints"), 8 * 153_944_064);
    assert!(bytes("update_checkpoints") * 1000 <= bytes("state_checkpoints") * 25);
    assert!(plan["overhead"]["update"].as_f64().unwrap() <= 2.0);
    assert!(plan["overhead"]["state"].as_f64().unwrap() > 9.0);

    let shown = printed(&["--plan", file, "--rows", "4", "--window", "2"]);
    for part in [
        "146.8 MiB",
        "4 requests",
        "checkpoints update:2",
        "checkpoints state:2",
    ] {
        assert!(shown.contains(part), "`{part}` is not in: {shown}");
    }
}

#[test]
fn what_cannot_be_inspected_is_refused_by_name() {
    let file = workspace().join("tests/fixtures/plans/hybrid-64-layers.json");
    let file = file.to_str().unwrap();
    let (_folder, genai) = export(|options| {
        options.target = Target::Cuda;
        options.spelling = pawl_builder::Spelling::Genai018;
    });
    let genai_config = genai.join("genai_config.json");
    for (args, part) in [
        (
            &["--plan", file, "--window", "9"][..],
            "option --window is 9, expected from 1 to 8",
        ),
        (
            &["--plan", file, "--rows", "0"],
            "'0' for '--rows <N>': expected a whole number from 1 to 18446744073709551615",
        ),
        (
            &["--plan", file, "--memory-limit", "1GiB"],
            "cannot be used with",
        ),
        (&["--plan", "nowhere.json"], "nowhere.json"),
        (&["--plan", file, "somewhere"], "cannot be used with"),
        (
            &["--plan", genai_config.to_str().unwrap()],
            "state_groups[0].element_type",
        ),
        (&["nowhere"], "nowhere/genai_config.json"),
        (&["nowhere", "--window", "3"], "cannot be used with"),
        (&[], "required"),
    ] {
        let message = refused(args);
        assert!(message.contains(part), "{args:?}: {message}");
    }
    assert!(printed(&[genai.to_str().unwrap()]).contains("Gated DeltaNet"));
}
