//! A state into a file.

use super::error::StateFileError;
use super::format::{Entry, FORMAT, TOKENS, UNREAD, VERSION, checksum};
use super::layout::{CacheLayout, Layout};
use crate::kv::KeysValues;
use crate::txn::StateImage;
use genai_config_schema::existing_parent;
use safetensors::{Dtype, View};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Writes a state beside the target, then in its place: whenever the process ends, the target is either what it was or
/// complete. What a killed process leaves is a hidden file beside the target, `.pawl-state-*`.
///
/// # Errors
/// Targets that cannot be written or are no regular files.
pub(crate) fn write(
    path: &Path,
    layout: &Layout,
    tokens: &[u32],
    image: &StateImage,
) -> Result<(), StateFileError> {
    let failed = |source: std::io::Error| StateFileError::file(path, source);
    let target = target(path).map_err(failed)?;
    let entries = entries(layout, tokens, image);
    let metadata = metadata(layout, &entries);
    let folder = target.parent().unwrap_or(Path::new("."));
    let partial = beside(folder).map_err(failed)?;
    let permissions = partial.as_file().metadata().map_err(failed)?.permissions();
    let tensors = entries.into_iter().map(|entry| (entry.name.clone(), entry));
    let metadata = Some(metadata.into_iter().collect());
    safetensors::serialize_to_file(tensors, metadata, partial.path())
        .map_err(|error| failed(std::io::Error::other(error.to_string())))?;
    let partial = partial.into_temp_path();
    // What was written replaced the file, and is for its owner alone again.
    std::fs::set_permissions(&partial, permissions).map_err(failed)?;
    let written = File::open(&partial).and_then(|file| file.sync_all());
    written.map_err(failed)?;
    partial.persist(&target).map_err(|e| failed(e.error))
}

/// A new file in a folder, made here: errors of the library name the temporary file, which nobody asked for, and its files
/// are for their owner alone, where who may read what was said is for the umask to say.
fn beside(folder: &Path) -> std::io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder
        .prefix(".pawl-state-")
        .make_in(folder, |path| File::create_new(path))
}

/// The file to write, through a link if it is one. Only regular files are replaced.
fn target(path: &Path) -> std::io::Result<PathBuf> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => path.canonicalize(),
        Ok(_) => Err(std::io::Error::other("is not a regular file")),
        Err(_) => {
            existing_parent(path)?;
            std::path::absolute(path)
        }
    }
}

fn metadata(layout: &Layout, entries: &[Entry<Vec<u8>>]) -> BTreeMap<String, String> {
    let known = [
        ("format", FORMAT.to_owned()),
        ("version", VERSION.to_owned()),
        ("model", layout.model.to_string()),
    ];
    let known = known.map(|(key, value)| (key.to_owned(), value));
    let mut metadata = BTreeMap::from(known);
    let sum = checksum(&metadata, entries.iter().collect());
    metadata.insert("sha256".to_owned(), sum);
    metadata
}

fn entries(layout: &Layout, tokens: &[u32], image: &StateImage) -> Vec<Entry<Vec<u8>>> {
    let ids = tokens.iter().flat_map(|id| id.to_le_bytes()).collect();
    let mut entries = vec![Entry {
        name: TOKENS.to_owned(),
        dtype: Dtype::U32,
        shape: vec![tokens.len()],
        bytes: ids,
    }];
    let fixed = layout.fixed.iter().zip(&image.fixed);
    entries.extend(fixed.map(|(fixed, row)| Entry {
        name: fixed.name.clone(),
        dtype: fixed.dtype(),
        shape: fixed.shape.clone(),
        bytes: fixed.swapped(row),
    }));
    let mut cache = |layout: Option<&CacheLayout>, tokens: usize, layers: &[KeysValues]| {
        let Some(layout) = layout else { return };
        for ((key, value), KeysValues { keys, values }) in layout.layers.iter().zip(layers) {
            entries.push(floats(key, layout.shape(tokens), keys));
            entries.push(floats(value, layout.shape(tokens), values));
        }
    };
    cache(layout.cache.as_ref(), image.tokens, &image.cache);
    if let Some(head) = &image.head {
        cache(layout.head.as_ref(), head.tokens, &head.cache);
        let width = layout.hidden.max(1);
        if !head.unread.is_empty() {
            let shape = vec![head.unread.len() / width, width];
            entries.push(floats(UNREAD, shape, &head.unread));
        }
    }
    entries
}

fn floats(name: &str, shape: Vec<usize>, values: &[f32]) -> Entry<Vec<u8>> {
    Entry {
        name: name.to_owned(),
        dtype: Dtype::F32,
        shape,
        bytes: values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect(),
    }
}

impl View for Entry<Vec<u8>> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }
    fn shape(&self) -> &[usize] {
        &self.shape
    }
    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }
    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}
