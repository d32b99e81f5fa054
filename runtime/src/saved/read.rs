//! A state out of a file. Everything that a file says is checked before it is believed.

use super::error::StateFileError;
use super::format::{Entry, FORMAT, KEYS, TOKENS, UNREAD, VERSION, checksum};
use super::layout::{CacheLayout, HEADER, Layout};
use crate::engine::KeptError;
use crate::kv::KeysValues;
use crate::txn::{HeadImage, StateImage};
use genai_config_schema::open_regular;
use safetensors::tensor::Metadata;
use safetensors::{Dtype, SafeTensors};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Reads a state of a model with this layout, and the tokens that it has seen.
///
/// # Errors
/// Files that cannot be read, are damaged, are no saved states, of another version, or of another model.
pub(crate) fn read(path: &Path, layout: &Layout) -> Result<(Vec<u32>, StateImage), StateFileError> {
    let damaged = |error: &dyn std::fmt::Display| StateFileError::damaged(path, error);
    let bytes = bytes(path, layout)?;
    let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|e| damaged(&e))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|e| damaged(&e))?;
    let entries = file.iter().map(|(name, view)| {
        let entry = Entry {
            name: name.to_owned(),
            dtype: view.dtype(),
            shape: view.shape().to_vec(),
            bytes: view.data(),
        };
        (name.to_owned(), entry)
    });
    let contents = Contents {
        path,
        metadata: header.metadata().clone().unwrap_or_default(),
        entries: entries.collect(),
    };
    contents.check(layout)?;
    contents.state(layout)
}

/// The bytes of a file, once its header says that there are as many, and no more than this engine has room for: a file of
/// any size takes no room on a disk.
fn bytes(path: &Path, layout: &Layout) -> Result<Vec<u8>, StateFileError> {
    let damaged = |reason: &dyn std::fmt::Display| StateFileError::damaged(path, reason);
    let failed = |error| StateFileError::file(path, error);
    let (mut file, size) = open_regular(path).map_err(failed)?;
    let mut bytes = start(&mut file).map_err(failed)?;
    let header = bytes.get(PREFIX..).unwrap_or_default();
    let header: Metadata = serde_json::from_slice(header).map_err(|error| damaged(&error))?;
    let announced = bytes.len().checked_add(header.data_len());
    if announced.and_then(|bytes| u64::try_from(bytes).ok()) != Some(size) {
        return Err(damaged(&format!(
            "{size} bytes are not what its header says"
        )));
    }
    let tokens = header.info(TOKENS).and_then(|ids| ids.shape.first());
    let tokens = tokens.copied().unwrap_or(0);
    let room = layout.room.min(layout.most_tokens);
    if tokens > room {
        return Err(too_long(path, &header, layout, tokens));
    }
    let most = layout.most_bytes(tokens);
    if size > most {
        let reason =
            format!("is larger than {most} bytes, the most that a state of {tokens} tokens has");
        return Err(damaged(&reason));
    }
    let rest = size.saturating_sub(u64::try_from(bytes.len()).unwrap_or(size));
    let reserved = bytes.try_reserve_exact(usize::try_from(rest).unwrap_or(usize::MAX));
    reserved.map_err(|error| failed(error.into()))?;
    file.take(rest).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Bytes before a header: its length.
const PREFIX: usize = 8;

/// The length of the header and the header, or what there is of them.
fn start(file: &mut File) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(PREFIX as u64).read_to_end(&mut bytes)?;
    let length = bytes
        .first_chunk()
        .map_or(0, |length| u64::from_le_bytes(*length));
    file.take(length.min(HEADER)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The error for a state of more tokens than a request, or the cache, can have.
fn too_long(path: &Path, header: &Metadata, layout: &Layout, tokens: usize) -> StateFileError {
    let [_, _, model, _] = KEYS;
    let found = header
        .metadata()
        .as_ref()
        .and_then(|metadata| metadata.get(model));
    if tokens <= layout.most_tokens && found == Some(&layout.model.to_string()) {
        let room = layout.room;
        let reason = format!(
            "`{}` holds {tokens} tokens, the key/value cache {room}",
            path.display()
        );
        return KeptError::NoRoom { reason }.into();
    }
    let most = layout.room.min(layout.most_tokens);
    StateFileError::other_model(path, TOKENS, format!("1 to {most} tokens"), tokens)
}

/// A file that is well formed.
struct Contents<'a> {
    path: &'a Path,
    metadata: HashMap<String, String>,
    entries: BTreeMap<String, Entry<&'a [u8]>>,
}

impl Contents<'_> {
    /// Whether it is an undamaged state of this model.
    fn check(&self, layout: &Layout) -> Result<(), StateFileError> {
        let [format, version, model, sum] = KEYS;
        let entry = |key: &str| self.metadata.get(key).map_or("absent", String::as_str);
        if entry(format) != FORMAT {
            return Err(StateFileError::NotAState {
                path: self.path.to_path_buf(),
                key: format,
                expected: FORMAT,
                found: entry(format).to_owned(),
            });
        }
        if entry(version) != VERSION {
            return Err(StateFileError::Version {
                path: self.path.to_path_buf(),
                found: entry(version).to_owned(),
                expected: VERSION,
            });
        }
        let metadata = self.metadata.iter();
        let metadata = metadata.map(|(key, value)| (key.clone(), value.clone()));
        let found = checksum(&metadata.collect(), self.entries.values().collect());
        if entry(sum) != found {
            let reason = format!("its checksum is {found}, {sum} says {}", entry(sum));
            return Err(StateFileError::damaged(self.path, reason));
        }
        let (expected, found) = (layout.model.to_string(), entry(model));
        if expected != found {
            let other = StateFileError::other_model(self.path, model, expected, found);
            return Err(other);
        }
        Ok(())
    }

    fn state(&self, layout: &Layout) -> Result<(Vec<u32>, StateImage), StateFileError> {
        let ids = self.tokens(layout)?;
        let fixed = layout.fixed.iter();
        let fixed = fixed.map(|fixed| {
            let bytes = self.tensor(&fixed.name, fixed.dtype(), &fixed.shape)?;
            self.finite(&fixed.name, fixed.dtype(), bytes)?;
            match fixed.foreign_id(bytes, layout.vocab) {
                None => Ok(fixed.swapped(bytes)),
                Some(id) => Err(StateFileError::other_model(
                    self.path,
                    &fixed.name,
                    format!("ids below {}", layout.vocab),
                    id.to_string(),
                )),
            }
        });
        let cache = match &layout.cache {
            Some(cache) => self.cache(cache, ids.len())?,
            None => Vec::new(),
        };
        let image = StateImage {
            tokens: ids.len(),
            fixed: fixed.collect::<Result<_, _>>()?,
            cache,
            head: self.head(layout, ids.len())?,
        };
        Ok((ids, image))
    }

    fn tokens(&self, layout: &Layout) -> Result<Vec<u32>, StateFileError> {
        let other = |expected: String, found: String| {
            StateFileError::other_model(self.path, TOKENS, expected, found)
        };
        let entry = self.entries.get(TOKENS);
        let ids = entry.filter(|entry| entry.dtype == Dtype::U32 && entry.shape.len() == 1);
        let entry = ids.ok_or_else(|| other("[n] U32".to_owned(), shown(entry)))?;
        let ids: Vec<u32> = words(entry.bytes).map(u32::from_le_bytes).collect();
        if ids.is_empty() || ids.len() > layout.most_tokens {
            let expected = format!("1 to {} tokens", layout.most_tokens);
            return Err(other(expected, ids.len().to_string()));
        }
        match ids.iter().find(|id| **id >= layout.vocab) {
            None => Ok(ids),
            Some(id) => Err(other(format!("ids below {}", layout.vocab), id.to_string())),
        }
    }

    fn head(&self, layout: &Layout, tokens: usize) -> Result<Option<HeadImage>, StateFileError> {
        let Some(head) = &layout.head else {
            return Ok(None);
        };
        let first = head.layers.first();
        let first = first.and_then(|(key, _)| self.entries.get(key));
        let first = first.ok_or_else(|| StateFileError::NoHead {
            path: self.path.to_path_buf(),
        })?;
        // The head may be behind the decoder, never before it.
        let positions = first.shape.first().copied().unwrap_or(0).min(tokens);
        Ok(Some(HeadImage {
            tokens: positions,
            cache: self.cache(head, positions)?,
            unread: self.unread(layout, tokens - positions)?,
        }))
    }

    /// Hidden rows of at most the last `most` tokens.
    fn unread(&self, layout: &Layout, most: usize) -> Result<Vec<f32>, StateFileError> {
        let Some(entry) = self.entries.get(UNREAD) else {
            return Ok(Vec::new());
        };
        let rows = entry.shape.first().copied().unwrap_or(0).min(most);
        self.floats(UNREAD, &[rows, layout.hidden])
    }

    fn cache(&self, cache: &CacheLayout, tokens: usize) -> Result<Vec<KeysValues>, StateFileError> {
        let shape = cache.shape(tokens);
        let layers = cache.layers.iter();
        layers
            .map(|(key, value)| {
                let (keys, values) = (self.floats(key, &shape)?, self.floats(value, &shape)?);
                Ok(KeysValues { keys, values })
            })
            .collect()
    }

    fn floats(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, StateFileError> {
        let bytes = self.tensor(name, Dtype::F32, shape)?;
        self.finite(name, Dtype::F32, bytes)?;
        Ok(words(bytes).map(f32::from_le_bytes).collect())
    }

    /// Whatever is computed from a value that is not finite is no number either: of a head, it would tell against the head.
    fn finite(&self, name: &str, dtype: Dtype, bytes: &[u8]) -> Result<(), StateFileError> {
        let mut values = words(bytes).map(f32::from_le_bytes);
        if dtype == Dtype::F32 && !values.all(f32::is_finite) {
            let reason = format!("{name} holds values that are not finite");
            return Err(StateFileError::damaged(self.path, reason));
        }
        Ok(())
    }

    /// The little-endian bytes of a tensor of this type and shape.
    fn tensor(&self, name: &str, dtype: Dtype, shape: &[usize]) -> Result<&[u8], StateFileError> {
        let entry = self.entries.get(name);
        match entry {
            Some(entry) if entry.dtype == dtype && entry.shape == shape => Ok(entry.bytes),
            _ => {
                let (expected, found) = (format!("{shape:?} {dtype:?}"), shown(entry));
                Err(StateFileError::other_model(
                    self.path, name, expected, found,
                ))
            }
        }
    }
}

/// What a tensor is, for a message.
fn shown(entry: Option<&Entry<&[u8]>>) -> String {
    entry.map_or_else(
        || "absent".to_owned(),
        |entry| format!("{:?} {:?}", entry.shape, entry.dtype),
    )
}

fn words(bytes: &[u8]) -> impl Iterator<Item = [u8; 4]> {
    bytes.as_chunks::<4>().0.iter().copied()
}
