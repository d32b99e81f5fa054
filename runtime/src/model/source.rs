//! The files of a model, read and checked, before ONNX Runtime is involved.

use super::contract::{self, Contract, GraphFile, Subject};
use super::graph_io::{Allowance, GraphIo};
use crate::error::LoadError;
use genai_config_schema::{ConfigErrors, GenaiConfig, Manifest, Mtp, confined, regular_size};
use std::path::{Path, PathBuf};

/// Name of the configuration in a model folder.
pub(crate) const CONFIG_FILE: &str = "genai_config.json";

/// A model folder whose configuration and graphs agree.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) folder: PathBuf,
    pub(crate) config: GenaiConfig,
    pub(crate) manifest: Manifest,
    pub(crate) contract: Contract,
    pub(crate) decoder: GraphFile,
    pub(crate) head: Option<GraphFile>,
    /// Graphs that commit kept prefixes, each once.
    pub(crate) commits: Vec<GraphFile>,
    /// Graph files with their sizes in bytes.
    pub(crate) graph_sizes: Vec<(PathBuf, u64)>,
}

impl Source {
    /// Reads and checks `folder`.
    pub(crate) fn read(folder: &Path) -> Result<Self, LoadError> {
        let path = folder.join(CONFIG_FILE);
        let config = read_config(&path)?;
        let manifest = config.manifest();
        let manifest = manifest.map_err(|errors| LoadError::Config(with_file(errors, &path)))?;
        let mtp = enabled_head(&config);
        let mut graph_sizes = Vec::new();
        let mut left = Allowance::default();
        let mut graph = |name: &str| -> Result<GraphFile, LoadError> {
            let (path, size) = graph_file(folder, name)?;
            graph_sizes.push((path.clone(), size));
            read_graph(&path, name, &mut left)
        };
        let decoder = graph(&config.model.decoder.filename)?;
        let head = mtp.map(|mtp| graph(&mtp.filename)).transpose()?;
        let commits = commit_files(&manifest).into_iter();
        let commits = commits.map(|name| read_graph(&graph_file(folder, name)?.0, name, &mut left));
        let commits = commits.collect::<Result<Vec<_>, _>>()?;
        let contract = contract::check(&Subject {
            folder,
            config: &config,
            manifest: &manifest,
            decoder: &decoder,
            head: mtp.zip(head.as_ref()),
            commits: &commits,
        })?;
        Ok(Self {
            folder: folder.to_path_buf(),
            contract,
            decoder,
            head,
            commits,
            graph_sizes,
            config,
            manifest,
        })
    }

    /// The path of the decoder's graph.
    pub(crate) fn decoder_path(&self) -> PathBuf {
        self.folder.join(&self.decoder.name)
    }
}

/// Reads a configuration. Where there is none, but a checkpoint that was not exported yet, the error says so.
pub(super) fn read_config(path: &Path) -> Result<GenaiConfig, LoadError> {
    GenaiConfig::read(path).map_err(|errors| {
        let folder = path.parent().unwrap_or(Path::new(""));
        match !path.exists() && holds_checkpoint(folder) {
            true => LoadError::NotExported {
                folder: folder.to_path_buf(),
            },
            false => LoadError::Config(with_file(errors, path)),
        }
    })
}

/// Whether a folder holds what `build-model` reads: a description and weights.
fn holds_checkpoint(folder: &Path) -> bool {
    let mut entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let weights = |path: PathBuf| path.extension().is_some_and(|kind| kind == "safetensors");
    folder.join("config.json").is_file() && entries.any(|entry| weights(entry.path()))
}

/// The commit graphs that the groups of a model name, in their order.
fn commit_files(manifest: &Manifest) -> Vec<&str> {
    let mut files: Vec<&str> = Vec::new();
    for tensor in &manifest.fixed {
        let file = tensor.commit_filename.as_deref();
        files.extend(file.filter(|file| !files.contains(file)));
    }
    files
}

/// The head that the configuration asks for, if it does.
pub(super) fn enabled_head(config: &GenaiConfig) -> Option<&Mtp> {
    config
        .model
        .mtp
        .as_ref()
        .filter(|mtp| mtp.enabled != Some(false))
}

fn with_file(mut errors: ConfigErrors, path: &Path) -> ConfigErrors {
    errors.file.get_or_insert_with(|| path.to_path_buf());
    errors
}

/// The path of a graph, and its size in bytes.
fn graph_file(folder: &Path, name: &str) -> Result<(PathBuf, u64), LoadError> {
    let found = confined(folder, name).and_then(|path| {
        let size = regular_size(&path)?;
        Ok((path, size))
    });
    found.map_err(|source| LoadError::File {
        path: folder.join(name),
        source,
    })
}

fn read_graph(path: &Path, name: &str, left: &mut Allowance) -> Result<GraphFile, LoadError> {
    let io = GraphIo::read(path, left).map_err(|source| {
        let path = path.to_path_buf();
        if source.kind() == std::io::ErrorKind::InvalidData {
            let reason = source.to_string();
            LoadError::Graph { path, reason }
        } else {
            LoadError::File { path, source }
        }
    })?;
    Ok(GraphFile {
        name: name.to_owned(),
        io,
    })
}
