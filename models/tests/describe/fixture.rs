//! Settings and tensor headers of the checkpoints that tests use.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use pawl_models::CheckpointInfo;
use serde_json::Value;

/// Every checkpoint [`fixture`] knows.
pub(crate) const FIXTURES: &[&str] = &[
    "qwen3_5-odd",
    "lfm2-odd",
    "llama-odd",
    "qwen3-odd",
    "llama-rope-linear",
    "llama-rope-llama3",
    "llama-rope-yarn",
    "tiny-python",
];

/// The checkpoint of that name.
pub(crate) fn fixture(name: &str) -> CheckpointInfo {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = if name == "tiny-python" {
        root.join("checkpoints").join(name)
    } else {
        root.join("../tests/fixtures").join(name)
    };
    CheckpointInfo {
        config: json(&folder.join("config.json")),
        generation_config: Some(json(&folder.join("generation_config.json"))),
        tensors: header(&folder.join("model.safetensors")),
    }
}

fn json(path: &PathBuf) -> Value {
    let text = std::fs::read_to_string(path).expect("settings file");
    serde_json::from_str(&text).expect("JSON")
}

fn header(path: &Path) -> BTreeMap<String, Vec<u64>> {
    let mut file = File::open(path).expect("checkpoint");
    let mut length = [0; 8];
    file.read_exact(&mut length).expect("length of the header");
    let length = usize::try_from(u64::from_le_bytes(length)).expect("length of the header");
    let mut text = vec![0; length];
    file.read_exact(&mut text).expect("header");
    let header: BTreeMap<String, Value> = serde_json::from_slice(&text).expect("JSON");
    let tensors = header
        .into_iter()
        .filter(|(name, _)| name != "__metadata__");
    tensors
        .map(|(name, entry)| {
            let shape = entry.get("shape").and_then(Value::as_array).expect("shape");
            let shape = shape.iter().map(|size| size.as_u64().expect("size"));
            (name, shape.collect())
        })
        .collect()
}
