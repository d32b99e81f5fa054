//! Whole builds of small checkpoints.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use genai_config_schema::GenaiConfig;
use pawl_builder::{
    BuildError, BuildOptions, BuildReport, BuildRequest, CheckpointOption, Progress, Spelling,
    Target, build,
};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use tempfile::TempDir;

const FIXTURES: [&str; 7] = [
    "qwen3_5-odd",
    "lfm2-odd",
    "llama-odd",
    "qwen3-odd",
    "llama-rope-linear",
    "llama-rope-llama3",
    "llama-rope-yarn",
];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/fixtures")
        .join(name)
}

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/checkpoints/tiny-python")
}

fn options(change: impl FnOnce(&mut BuildOptions)) -> BuildOptions {
    let mut options = BuildOptions::default();
    change(&mut options);
    options
}

/// Builds into `world/out` and publishes.
fn publish(input: &Path, world: &Path, options: BuildOptions) -> BuildReport {
    let request = BuildRequest::new(input, world.join("out"), options);
    let (path, report) = build(&request, &mut ()).unwrap().publish().unwrap();
    assert_eq!(path, world.join("out"));
    report
}

fn refused(input: &Path, options: BuildOptions) -> String {
    let world = tempfile::tempdir().unwrap();
    let request = BuildRequest::new(input, world.path().join("a/out"), options);
    let message = build(&request, &mut ()).unwrap_err().to_string();
    assert_eq!(fs::read_dir(world.path()).unwrap().count(), 0, "{message}");
    message
}

/// Every file of a folder.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let read = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read(entry.path()).unwrap())
    };
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| read(entry.unwrap()))
        .collect()
}

/// A copy of a checkpoint that a test may spoil.
fn copied(input: &Path) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for name in ["config.json", "generation_config.json", "model.safetensors"] {
        fs::copy(input.join(name), copy.path().join(name)).unwrap();
    }
    copy
}

#[test]
fn every_fixture_builds_for_every_target_and_the_same_every_time() {
    let cuda = |options: &mut BuildOptions| options.target = Target::Cuda;
    let genai = |options: &mut BuildOptions| {
        options.target = Target::Cuda;
        options.spelling = Spelling::Genai018;
    };
    let state = |options: &mut BuildOptions| options.checkpoints = CheckpointOption::State(3);
    let plain = |options: &mut BuildOptions| options.checkpoints = CheckpointOption::None;
    let variants = [
        options(|_| ()),
        options(state),
        options(plain),
        options(cuda),
        options(genai),
    ];
    let inputs = FIXTURES.map(fixture);
    for input in inputs.iter().chain([&shipped()]) {
        for options in &variants {
            let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let report = publish(input, one.path(), options.clone());
            publish(input, two.path(), options.clone());
            let files = contents(&one.path().join("out"));
            assert!(
                files == contents(&two.path().join("out")),
                "{input:?} {options:?}"
            );
            check(&report, &files, input);
        }
    }
}

fn check(report: &BuildReport, files: &BTreeMap<String, Vec<u8>>, input: &Path) {
    let reported: Vec<_> = report
        .files
        .iter()
        .map(|file| (file.name.as_str(), file.bytes))
        .collect();
    let present: Vec<_> = files
        .iter()
        .map(|(name, b)| (name.as_str(), b.len() as u64))
        .collect();
    assert_eq!(reported, present);
    assert_eq!(
        report.total_bytes,
        present.iter().map(|(_, bytes)| bytes).sum::<u64>()
    );
    assert_eq!(files.contains_key("mtp.onnx"), report.options.mtp);
    assert_eq!(
        files["config.json"],
        fs::read(input.join("config.json")).unwrap()
    );

    let config = std::str::from_utf8(&files["genai_config.json"]).unwrap();
    let config = GenaiConfig::from_json(config).unwrap();
    assert_eq!(config.model.mtp.is_some(), report.options.mtp);
    assert_eq!(
        u64::from(config.model.context_length),
        report.options.max_sequence
    );
    let shared = &config.model.decoder.shared_initializers;
    for place in config
        .model
        .mtp
        .iter()
        .flat_map(|mtp| &mtp.shared_initializers)
    {
        let twin = shared
            .iter()
            .find(|twin| twin.offset == place.offset)
            .unwrap();
        assert_eq!(
            (&twin.data_file, twin.length),
            (&place.data_file, place.length)
        );
        assert_eq!(place.data_file, "model.onnx.data");
    }
    for place in shared {
        assert!(place.offset % 4096 == 0);
        assert!(place.offset + place.length <= files[&place.data_file].len() as u64);
    }
}

#[test]
fn the_report_says_what_is_there() {
    let world = tempfile::tempdir().unwrap();
    let report = publish(&shipped(), world.path(), BuildOptions::default());
    assert_eq!(
        (report.model_type.as_str(), report.options.mtp),
        ("qwen3_5_text", true)
    );
    assert_eq!(report.options.checkpoints, CheckpointOption::Update(8));
    assert!(
        (4_500_000..5_500_000).contains(&report.parameters),
        "{}",
        report.parameters
    );
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["options"]["checkpoints"], "update:8");
    assert_eq!(json["options"]["target"], "cpu");
    assert!(report.warnings.is_empty(), "{:?}", report.warnings);

    let world = tempfile::tempdir().unwrap();
    let report = publish(&fixture("llama-odd"), world.path(), BuildOptions::default());
    assert_eq!(
        (report.options.checkpoints, report.options.mtp),
        (CheckpointOption::None, false)
    );
    assert!(
        report
            .warnings
            .iter()
            .any(|warning| warning.contains("tokenizer.json: absent"))
    );

    let world = tempfile::tempdir().unwrap();
    let report = publish(
        &shipped(),
        world.path(),
        options(|options| options.mtp = false),
    );
    assert!(!report.options.mtp && !world.path().join("out/mtp.onnx").exists());
}

/// Shards, whatever their order, give the bytes that one file gives.
#[test]
fn shards_are_as_good_as_one_file() {
    let input = fixture("qwen3_5-odd");
    let (world, sharded) = (tempfile::tempdir().unwrap(), copied(&input));
    publish(&input, world.path(), BuildOptions::default());
    let expected = contents(&world.path().join("out"));

    let file = fs::read(input.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    fs::remove_file(sharded.path().join("model.safetensors")).unwrap();
    let mut shards: [Vec<(String, TensorView<'_>)>; 3] = Default::default();
    for (index, (name, view)) in tensors.tensors().into_iter().enumerate() {
        shards[index * 7 % 3].push((name, view));
    }
    let mut map = BTreeMap::new();
    for (index, shard) in shards.into_iter().enumerate() {
        let name = format!("model-0000{}-of-00003.safetensors", index + 1);
        map.extend(
            shard
                .iter()
                .map(|(tensor, _)| (tensor.clone(), name.clone())),
        );
        let bytes = safetensors::serialize(shard, None).unwrap();
        fs::write(sharded.path().join(name), bytes).unwrap();
    }
    let index = serde_json::json!({"weight_map": map}).to_string();
    fs::write(sharded.path().join("model.safetensors.index.json"), index).unwrap();
    let world = tempfile::tempdir().unwrap();
    publish(sharded.path(), world.path(), BuildOptions::default());
    assert!(contents(&world.path().join("out")) == expected);
}

/// Stops in the middle of the weights.
struct Stop(u64);

impl Progress for Stop {
    fn begin(&mut self, total: u64) {
        self.0 = total / 2;
    }

    fn advance(&mut self, _: &str, bytes: u64) {
        self.0 = self.0.checked_sub(bytes).expect("stopped");
    }
}

#[test]
fn what_stops_in_the_middle_leaves_nothing() {
    let world = tempfile::tempdir().unwrap();
    publish(&fixture("qwen3-odd"), world.path(), BuildOptions::default());
    let before = contents(&world.path().join("out"));

    for name in ["out", "new/out"] {
        let forced = options(|options| options.force = true);
        let request = BuildRequest::new(shipped(), world.path().join(name), forced);
        let stopped = catch_unwind(AssertUnwindSafe(|| {
            build(&request, &mut Stop(0)).map(|_| ())
        }));
        assert!(stopped.is_err());
        drop(build(&request, &mut ()).unwrap());
    }
    assert_eq!(fs::read_dir(world.path()).unwrap().count(), 1);
    assert!(contents(&world.path().join("out")) == before);
}

/// Stops the build through its handle, in the middle of the weights.
struct Interrupter<'a> {
    request: &'a BuildRequest,
    left: u64,
    after: u64,
}

impl Progress for Interrupter<'_> {
    fn begin(&mut self, total: u64) {
        self.left = total / 2;
    }

    fn advance(&mut self, _: &str, bytes: u64) {
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None if self.request.interrupt.is_stopped() => self.after += bytes,
            None => self.request.interrupt.stop(),
        }
    }
}

#[test]
fn an_interrupted_build_stops_at_once_and_leaves_nothing() {
    let world = tempfile::tempdir().unwrap();
    let request =
        |name: &str| BuildRequest::new(shipped(), world.path().join(name), BuildOptions::default());
    let stopped = request("a/out");
    let mut progress = Interrupter {
        request: &stopped,
        left: 0,
        after: 0,
    };
    let error = build(&stopped, &mut progress).unwrap_err();
    assert!(matches!(error, BuildError::Interrupted), "{error}");
    assert_eq!(
        progress.after, 0,
        "bytes were written after the interruption"
    );
    assert_eq!(fs::read_dir(world.path()).unwrap().count(), 0);

    let late = request("out");
    let staged = build(&late, &mut ()).unwrap();
    late.interrupt.stop();
    assert_eq!(fs::read_dir(world.path()).unwrap().count(), 0);
    let error = staged.publish().unwrap_err();
    assert!(matches!(error, BuildError::Interrupted), "{error}");
    assert_eq!(fs::read_dir(world.path()).unwrap().count(), 0);
}

#[test]
fn a_staged_export_is_complete() {
    let world = tempfile::tempdir().unwrap();
    let request = BuildRequest::new(
        fixture("lfm2-odd"),
        world.path().join("out"),
        BuildOptions::default(),
    );
    let staged = build(&request, &mut ()).unwrap();
    let there = contents(&staged.path());
    assert_eq!(staged.report().files.len(), there.len());
    assert!(!request.output.exists());
    staged.publish().unwrap();
    assert!(contents(&request.output) == there);
}

#[test]
fn inputs_that_are_no_known_model_are_refused_and_leave_nothing() {
    let spoil = |name: &str, text: &str| {
        let copy = copied(&fixture("qwen3-odd"));
        fs::write(copy.path().join(name), text).unwrap();
        (refused(copy.path(), BuildOptions::default()), copy)
    };
    let (message, copy) = spoil("config.json", r#"{"model_type":"gpt_nine"}"#);
    assert!(
        message.contains("config.json") && message.contains("gpt_nine"),
        "{message}"
    );
    assert!(
        message.contains(&copy.path().display().to_string()),
        "{message}"
    );
    let (message, _) = spoil("config.json", r#"{"model_type":"#);
    assert!(
        message.contains("config.json: is not valid JSON"),
        "{message}"
    );
    let (message, _) = spoil("generation_config.json", "5");
    assert!(
        message.contains("generation_config.json: must hold a JSON object"),
        "{message}"
    );
    let (message, _) = spoil("model.safetensors", "short");
    assert!(
        message.contains("model.safetensors: is truncated"),
        "{message}"
    );

    let config = fs::read_to_string(fixture("qwen3-odd").join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    config["hidden_size"] = serde_json::json!(config["hidden_size"].as_u64().unwrap() * 2);
    let (message, _) = spoil("config.json", &config.to_string());
    assert!(
        message.contains("expected") && message.contains("embed_tokens"),
        "{message}"
    );

    let message = refused(Path::new("no/such/folder"), BuildOptions::default());
    assert!(
        message.contains("no/such/folder: cannot be read"),
        "{message}"
    );
    let message = refused(
        &shipped(),
        options(|options| options.max_sequence = Some(u32::MAX)),
    );
    assert!(message.contains("--max-sequence 4294967295"), "{message}");
    let message = refused(
        &shipped(),
        options(|options| options.spelling = Spelling::Genai018),
    );
    assert!(message.contains("--spelling genai-0.18"), "{message}");
}
