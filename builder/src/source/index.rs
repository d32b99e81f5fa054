//! `model.safetensors.index.json`: which file of a sharded checkpoint holds which tensor.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use serde::Deserialize;

use super::file;
use super::unique::Unique;
use crate::error::BuildError;
use crate::limits::INDEX_BYTES;

/// Most names a message lists.
const LISTED: usize = 5;

/// The parsed index. Every file name is one plain component.
#[derive(Debug)]
pub(super) struct Index {
    files: BTreeMap<String, String>,
}

impl Index {
    pub(super) fn read(path: &Path) -> Result<Self, BuildError> {
        let text = file::read_text(path, INDEX_BYTES)?;
        let wire: Wire = serde_json::from_str(&text).map_err(|error| {
            BuildError::input(path, "", format!("is not a valid index: {error}"))
        })?;
        let files = wire.weight_map.0;
        if files.is_empty() {
            return Err(BuildError::input(path, "weight_map", "lists no tensors"));
        }
        for (tensor, file) in &files {
            let mut components = Path::new(file).components();
            let plain = matches!(
                (components.next(), components.next()),
                (Some(Component::Normal(name)), None) if name.as_encoded_bytes() == file.as_bytes()
            );
            if !plain || file.contains(['/', '\\']) || !file.ends_with(".safetensors") {
                let problem = format!(
                    "is in {file:?}, which is not the name of a .safetensors file in this folder"
                );
                return Err(BuildError::input(
                    path,
                    format!("weight_map.{tensor}"),
                    problem,
                ));
            }
        }
        Ok(Self { files })
    }

    /// The files, each once, in order of their names.
    pub(super) fn shards(&self) -> BTreeSet<&str> {
        self.files.values().map(String::as_str).collect()
    }

    pub(super) fn lists(&self, tensor: &str) -> bool {
        self.files.contains_key(tensor)
    }

    /// Names every file of the index that is not in the folder.
    pub(super) fn require_shards(&self, folder: &Path) -> Result<(), BuildError> {
        let mut missing = Vec::new();
        for shard in self.shards() {
            if !file::exists(&folder.join(shard))? {
                missing.push(shard);
            }
        }
        match missing.is_empty() {
            true => Ok(()),
            false => Err(BuildError::input(
                folder,
                "",
                format!("lacks {} of the index", list(&missing)),
            )),
        }
    }

    /// A warning of weights in the folder that the index does not name, where there are some: what is left of another
    /// model, or an index that is.
    pub(super) fn strangers(&self, path: &Path, folder: &Path) -> Option<String> {
        let shards = self.shards();
        let found = names(folder, &["safetensors"]);
        let strangers: Vec<_> = (found.iter().map(String::as_str))
            .filter(|name| !shards.contains(name))
            .collect();
        let names = (!strangers.is_empty()).then(|| list(&strangers))?;
        Some(format!(
            "{}: does not name {names}; not used",
            path.display()
        ))
    }

    /// Every listed tensor must be in its file. Returns how many tensors the files hold beyond.
    pub(super) fn check(
        &self,
        path: &Path,
        located: &BTreeMap<&str, &Path>,
    ) -> Result<usize, BuildError> {
        let absent: Vec<_> = (self.files.iter())
            .filter(|(tensor, file)| {
                let found = located
                    .get(tensor.as_str())
                    .and_then(|path| path.file_name());
                found.is_none_or(|name| name != file.as_str())
            })
            .map(|(tensor, file)| format!("{tensor} (in {file})"))
            .collect();
        if !absent.is_empty() {
            let absent: Vec<_> = absent.iter().map(String::as_str).collect();
            let problem = format!("lists tensors that are not there: {}", list(&absent));
            return Err(BuildError::input(path, "weight_map", problem));
        }
        Ok(located.len() - self.files.len())
    }
}

/// Names in a folder that end in one of `kinds`, in order.
fn names(folder: &Path, kinds: &[&str]) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| {
            let kind = Path::new(name).extension();
            kind.is_some_and(|kind| kinds.iter().any(|wanted| kind == *wanted))
        })
        .collect();
    names.sort_unstable();
    names
}

/// The error for a folder without safetensors files that can be used.
pub(super) fn no_weights(folder: &Path) -> BuildError {
    let others = names(folder, &["bin", "pt", "pth", "gguf", "safetensors"]);
    let expected = "holds neither model.safetensors nor model.safetensors.index.json";
    let problem = match others.is_empty() {
        true => expected.to_owned(),
        false => {
            let others: Vec<_> = others.iter().map(String::as_str).collect();
            format!(
                "{expected}, only {}; save the model as safetensors (save_pretrained of \
                 transformers does)",
                list(&others)
            )
        }
    };
    BuildError::input(folder, "", problem)
}

fn list(names: &[&str]) -> String {
    let shown: Vec<_> = names.iter().take(LISTED).copied().collect();
    let more = match names.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", shown.join(", "))
}

#[derive(Debug, Deserialize)]
struct Wire {
    weight_map: Unique<String>,
}
