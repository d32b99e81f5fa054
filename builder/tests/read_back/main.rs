//! Every kind of export, read back with a decoder that shares no code with the encoder.
//!
//! What is checked is what another program needs to load the files: that every value is made before it is used, that
//! weights lie where they are said to, that operators have a version, and that `genai_config.json` and the graphs use
//! the same names.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod data;
mod names;
mod structure;

use std::fs;
use std::path::{Path, PathBuf};

use onnx_protobuf::{Message, ModelProto};
use pawl_builder::{
    BuildOptions, BuildRequest, CheckpointOption, Dtype, MtpWeights, Spelling, Target, build,
};
use serde_json::Value;

/// One checkpoint of each architecture, and each kind of position scaling.
const FIXTURES: [&str; 7] = [
    "qwen3_5-odd",
    "lfm2-odd",
    "llama-odd",
    "qwen3-odd",
    "llama-rope-linear",
    "llama-rope-llama3",
    "llama-rope-yarn",
];

/// A published export.
struct Exported {
    /// What was built, for messages.
    name: String,
    folder: PathBuf,
    config: Value,
    /// File name and contents of each graph; the decoder first.
    graphs: Vec<(String, ModelProto)>,
    /// Those that commit a kept prefix.
    commits: Vec<(String, ModelProto)>,
}

impl Exported {
    fn read(name: String, folder: &Path) -> Self {
        let config = fs::read(folder.join("genai_config.json")).unwrap();
        let config: Value = serde_json::from_slice(&config).unwrap();
        let sections = [&config["model"]["decoder"], &config["model"]["mtp"]];
        let files = sections
            .iter()
            .filter_map(|section| section["filename"].as_str());
        let graph = |file: &str| {
            let bytes = fs::read(folder.join(file)).unwrap();
            (
                file.to_owned(),
                ModelProto::parse_from_bytes(&bytes).unwrap(),
            )
        };
        let groups = config["model"]["decoder"]["state_groups"].as_array();
        let commits = groups.into_iter().flatten();
        let commits = commits.filter_map(|group| group["commit_filename"].as_str());
        Self {
            name,
            folder: folder.to_owned(),
            graphs: files.map(graph).collect(),
            commits: commits.map(graph).collect(),
            config,
        }
    }

    /// Every graph.
    fn all(&self) -> impl Iterator<Item = &(String, ModelProto)> {
        self.graphs.iter().chain(&self.commits)
    }
}

/// Every combination of target, element type, checkpoint form and spelling that can be built.
fn variants() -> Vec<BuildOptions> {
    let forms = [
        CheckpointOption::None,
        CheckpointOption::Update(8),
        CheckpointOption::Update(1),
        CheckpointOption::State(3),
    ];
    let mut variants = Vec::new();
    for checkpoints in forms {
        for (target, dtype) in [
            (Target::Cpu, Dtype::F32),
            (Target::Cuda, Dtype::F16),
            (Target::Cuda, Dtype::Bf16),
        ] {
            for spelling in [Spelling::Pawl, Spelling::Genai018] {
                let mut options = BuildOptions::default();
                options.target = target;
                options.dtype = Some(dtype);
                options.checkpoints = checkpoints;
                options.spelling = spelling;
                let cpu = target == Target::Cpu && spelling == Spelling::Pawl;
                let dense = matches!(checkpoints, CheckpointOption::State(_));
                if cpu || (target == Target::Cuda && !dense) {
                    variants.push(options);
                }
            }
        }
    }
    let mut headless = BuildOptions::default();
    headless.mtp = false;
    variants.push(headless);
    let mut whole = BuildOptions::default();
    whole.mtp_weights = Some(MtpWeights::Same);
    variants.push(whole);
    variants
}

/// Builds every variant of a checkpoint and hands each to `check`.
fn each(input: &Path, check: &dyn Fn(&Exported)) {
    let world = tempfile::tempdir().unwrap();
    for mut options in variants() {
        options.force = true;
        let name = format!("{} {options:?}", input.display());
        let request = BuildRequest::new(input, world.path().join("out"), options);
        let (folder, report) = build(&request, &mut ()).unwrap().publish().unwrap();
        let exported = Exported::read(name, &folder);
        assert_eq!(exported.graphs.len(), 1 + usize::from(report.options.mtp));
        check(&exported);
    }
}

fn inputs() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut inputs: Vec<_> = FIXTURES
        .iter()
        .map(|name| root.join("tests/fixtures").join(name))
        .collect();
    inputs.push(root.join("models/checkpoints/tiny-python"));
    inputs
}

#[test]
fn every_export_reads_back_whole() {
    for input in inputs() {
        each(&input, &|exported| {
            structure::check(exported);
            data::check(exported);
            names::check(exported);
        });
    }
}
