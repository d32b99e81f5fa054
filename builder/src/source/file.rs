//! Regular files: bounded settings files and positioned reads.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde_json::Value;

use crate::error::BuildError;

/// Largest settings file that is parsed.
const MOST_JSON: u64 = 64 << 20;

/// Whether there is something at `path`; failing to find out is an error.
pub(super) fn exists(path: &Path) -> Result<bool, BuildError> {
    path.try_exists().map_err(BuildError::read(path))
}

/// Opens a regular file. Anything else is refused, since opening a pipe would wait for a writer.
pub(super) fn open(path: &Path) -> Result<File, BuildError> {
    let metadata = std::fs::metadata(path).map_err(BuildError::read(path))?;
    if !metadata.is_file() {
        return Err(BuildError::input(path, "", "is not a regular file"));
    }
    File::open(path).map_err(BuildError::read(path))
}

/// Reads a settings file of at most 64 MiB.
pub(super) fn read_text(path: &Path) -> Result<String, BuildError> {
    let file = open(path)?;
    let mut text = String::new();
    let read = file.take(MOST_JSON + 1).read_to_string(&mut text);
    let length = read.map_err(BuildError::read(path))?;
    if length as u64 > MOST_JSON {
        return Err(BuildError::input(path, "", "is larger than 64 MiB"));
    }
    Ok(text)
}

/// Reads a settings file that holds one JSON object.
pub(super) fn read_object(path: &Path) -> Result<Value, BuildError> {
    let text = read_text(path)?;
    let value: Value = serde_json::from_str(&text)
        .map_err(|error| BuildError::input(path, "", format!("is not valid JSON: {error}")))?;
    match value {
        Value::Object(_) => Ok(value),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(BuildError::input(path, "", "must hold a JSON object"))
        }
    }
}

/// Fills `buffer` from `offset` on without moving a shared cursor; too little is `UnexpectedEof`.
#[cfg(unix)]
pub(super) fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
}

/// Fills `buffer` from `offset` on; too little is `UnexpectedEof`.
#[cfg(windows)]
pub(super) fn read_exact_at(file: &File, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, buffer, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                buffer = buffer.get_mut(read..).unwrap_or_default();
                offset += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
