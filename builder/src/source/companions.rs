//! Files that go along with a model unchanged: tokenizer, chat template, generation settings.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::file;
use crate::error::BuildError;
use crate::limits::COMPANION_BYTES;

/// Copied where present, in this order.
const NAMES: [&str; 12] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
];

/// A file to copy.
#[derive(Debug)]
pub(crate) struct Companion {
    pub(crate) name: &'static str,
    pub(crate) path: PathBuf,
    /// Bytes.
    pub(crate) size: u64,
}

/// The files of a checkpoint folder that are copied along, and a warning for each kind that a
/// model usually has and this one lacks.
pub(crate) fn companions(folder: &Path) -> Result<(Vec<Companion>, Vec<String>), BuildError> {
    let mut found = Vec::new();
    for name in NAMES {
        let path = folder.join(name);
        if !file::exists(&path)? {
            continue;
        }
        let size = file::size(&path)?;
        if size > COMPANION_BYTES {
            let problem = format!("has {size} bytes, at most {COMPANION_BYTES} are copied along");
            return Err(BuildError::input(&path, "", problem));
        }
        found.push(Companion { name, path, size });
    }
    let has = |name| found.iter().any(|file| file.name == name);
    let mut warnings = Vec::new();
    let mut absent = |name: &str, effect: &str| {
        warnings.push(format!("{}: absent; {effect}", folder.join(name).display()));
    };
    if !has("tokenizer.json") {
        absent("tokenizer.json", "the model takes and gives token ids only");
    }
    if !has("tokenizer_config.json") {
        absent(
            "tokenizer_config.json",
            "special tokens have no roles in text",
        );
    }
    if !has("chat_template.jinja") && !has("chat_template.json") && !inline_template(folder)? {
        absent("chat_template.jinja", "there is no chat template");
    }
    if !has("generation_config.json") {
        absent(
            "generation_config.json",
            "sampling starts from general defaults",
        );
    }
    Ok((found, warnings))
}

fn inline_template(folder: &Path) -> Result<bool, BuildError> {
    let path = folder.join("tokenizer_config.json");
    if !file::exists(&path)? {
        return Ok(false);
    }
    /// The one key that matters; the others may be megabytes of tokens.
    #[derive(Deserialize)]
    struct Settings {
        chat_template: Option<IgnoredAny>,
    }
    let text = file::read_text(&path, COMPANION_BYTES)?;
    let settings: Settings = serde_json::from_str(&text)
        .map_err(|error| BuildError::input(&path, "", format!("is not valid JSON: {error}")))?;
    Ok(settings.chat_template.is_some())
}
