//! Doors for fuzzing: bytes of anywhere through code that reads checkpoints. Not part of the interface.
//!
//! Each function takes any bytes and fails only where the builder is wrong: it panics, contradicts itself, or reads what
//! the reference reader reads otherwise. Compiled for tests, which replay `tests/fuzz/corpus`, and with the feature
//! `fuzzing`.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a finding is a panic, and so is a machine without a temporary folder"
)]

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use pawl_models::{CheckpointInfo, DescribeError, ModelDescription, Weight, describe};
use safetensors::SafeTensors;
use serde_json::Value;
use tempfile::TempDir;

use crate::error::BuildError;
use crate::onnx::{check, external};
use crate::options::{BuildOptions, Target};
use crate::source::{Checkpoint, Segment};
use crate::{commit, config, decoder};

/// Most elements of a checkpoint that is made for a configuration: beyond it no file system holds one.
const MOST_ELEMENTS: u64 = 1 << 40;
/// Most positions for which the tables of a CUDA graph are made.
const MOST_POSITIONS: u64 = 1 << 12;

/// Opens a checkpoint folder whose `model.safetensors` is `file`, reads every weight, and compares with the reference
/// reader.
pub fn safetensors_header(file: &[u8]) {
    thread_local! {
        static FOLDER: OnceCell<TempDir> = const { OnceCell::new() };
    }
    FOLDER.with(|folder| {
        let folder = folder.get_or_init(|| {
            let folder = tempfile::tempdir().expect("a temporary folder");
            std::fs::write(folder.path().join("config.json"), "{}").expect("a settings file");
            folder
        });
        overwrite(&folder.path().join("model.safetensors"), file).expect("a checkpoint");
        match Checkpoint::open(folder.path()) {
            Ok(checkpoint) => compare(&checkpoint, file),
            Err(error) => assert!(error.to_string().contains("model.safetensors"), "{error}"),
        }
    });
}

/// Some file systems write a file out at once when it was emptied first, and that takes a hundred times as long.
fn overwrite(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let options = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path);
    let mut file = options?;
    file.write_all(bytes)?;
    file.set_len(bytes.len() as u64)
}

/// What is accepted is what the reference reader finds, byte for byte.
fn compare(checkpoint: &Checkpoint, file: &[u8]) {
    let shapes = checkpoint.info().tensors;
    let weights: BTreeMap<&String, Vec<Segment>> = shapes
        .iter()
        .filter_map(|(name, shape)| {
            let weight = Weight::whole(name, shape.as_slice());
            Some((name, checkpoint.segments(&weight).ok()?))
        })
        .collect();
    let reference = match SafeTensors::deserialize(file) {
        Ok(reference) => reference,
        // Types that the reference does not know are refused where they are used, not here.
        Err(_) if weights.len() < shapes.len() => return,
        Err(error) => panic!("accepted, but the reference reader says: {error}"),
    };
    assert_eq!(shapes.len(), reference.len(), "another number of tensors");
    for (name, view) in reference.tensors() {
        let shape: Vec<u64> = view.shape().iter().map(|&extent| extent as u64).collect();
        assert_eq!(shapes.get(&name), Some(&shape), "{name}");
        if let Some(segments) = weights.get(&name) {
            assert_eq!(read(checkpoint, segments), view.data(), "{name}");
        }
    }
}

fn read(checkpoint: &Checkpoint, segments: &[Segment]) -> Vec<u8> {
    let mut all = Vec::new();
    for segment in segments {
        let elements = usize::try_from(segment.elements).expect("no more than the file holds");
        let mut bytes = vec![0; elements * segment.dtype.size()];
        let read = checkpoint.read(segment, 0, &mut bytes);
        read.expect("the header was checked against the length of the file");
        all.extend(bytes);
    }
    all
}

/// Reads `config.json`, up to a zero byte, and `generation_config.json` after it, and goes all the way to the graphs of a
/// checkpoint that has the tensors it asks for.
pub fn hugging_face_config(text: &[u8]) {
    let mut files = text.splitn(2, |&byte| byte == 0);
    let Some(Ok(config)) = files.next().map(serde_json::from_slice) else {
        return;
    };
    let generation_config = files
        .next()
        .and_then(|text| serde_json::from_slice(text).ok());
    let mut checkpoint = CheckpointInfo {
        config,
        generation_config,
        tensors: BTreeMap::new(),
    };
    let Some(model) = described(&mut checkpoint) else {
        return;
    };
    let mut options = BuildOptions::default();
    sound(&model, &options, checkpoint.generation_config.as_ref());
    if model.context_length <= MOST_POSITIONS {
        options.target = Target::Cuda;
        sound(&model, &options, checkpoint.generation_config.as_ref());
    }
}

/// The description of a checkpoint that has whatever tensors are asked for; `None` where the settings are refused, or no
/// file system could hold the tensors.
fn described(checkpoint: &mut CheckpointInfo) -> Option<ModelDescription> {
    // Some tensors decide what else is asked for.
    for _ in 0..4 {
        let problems = match describe(checkpoint) {
            Ok(model) => return Some(model),
            Err(DescribeError::Tensors { problems }) => problems,
            Err(error) => {
                assert!(
                    error.to_string().contains("expected"),
                    "names nothing: {error}"
                );
                return None;
            }
        };
        for problem in problems {
            checkpoint.tensors.insert(problem.tensor, problem.expected);
        }
        let elements = checkpoint.tensors.values().try_fold(0_u64, |sum, shape| {
            let elements = shape
                .iter()
                .try_fold(1_u64, |n, &extent| n.checked_mul(extent))?;
            sum.checked_add(elements)
        });
        if elements.is_none_or(|elements| elements > MOST_ELEMENTS) {
            return None;
        }
    }
    panic!("never content with {:?}", checkpoint.tensors);
}

/// A model is refused as the input's fault, or its graphs and its configuration are sound.
fn sound(model: &ModelDescription, options: &BuildOptions, generation: Option<&Value>) {
    let built = decoder::emit(model, options).and_then(|mut graphs| {
        graphs.extend(commit::emit(model, options)?);
        for graph in &graphs {
            check::check(graph)?;
        }
        let shared = external::plan(&graphs)?.shared(&graphs)?;
        let config = config::genai_config(model, options, &shared, generation)?;
        let validity = config.validate();
        validity.map_err(|errors| BuildError::defect("genai_config.json", "", errors.to_string()))
    });
    if let Err(error @ BuildError::Defect { .. }) = built {
        panic!("{error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every input of the corpus of `target`.
    fn replay(target: &str, run: fn(&[u8])) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/corpus");
        let inputs = std::fs::read_dir(root.join(target)).unwrap();
        let count = inputs
            .map(|input| run(&std::fs::read(input.unwrap().path()).unwrap()))
            .count();
        assert!(count >= 8, "{count} inputs of {target}");
    }

    #[test]
    fn safetensors_header() {
        replay("safetensors_header", super::safetensors_header);
    }

    #[test]
    fn hugging_face_config() {
        replay("hugging_face_config", super::hugging_face_config);
    }
}
