//! Regular files: bounded settings files and positioned reads.

use std::fs::File;
use std::io;
use std::path::Path;

use serde_json::Value;

use crate::error::BuildError;
use crate::limits::SETTINGS_BYTES;

/// Whether there is something at `path`; failing to find out is an error.
pub(super) fn exists(path: &Path) -> Result<bool, BuildError> {
    path.try_exists().map_err(BuildError::read(path))
}

/// Opens a regular file. Anything else is refused, since opening a pipe would wait for a writer.
pub(super) fn open(path: &Path) -> Result<File, BuildError> {
    let (file, _) = genai_config_schema::open_regular(path).map_err(refused(path))?;
    Ok(file)
}

/// Bytes of a regular file.
pub(super) fn size(path: &Path) -> Result<u64, BuildError> {
    genai_config_schema::regular_size(path).map_err(refused(path))
}

/// Reads a settings file of at most `most` bytes.
pub(super) fn read_text(path: &Path, most: u64) -> Result<String, BuildError> {
    genai_config_schema::read_regular_text(path, most).map_err(refused(path))
}

/// Reads a settings file that holds one JSON object.
pub(super) fn read_object(path: &Path) -> Result<Value, BuildError> {
    let text = read_text(path, SETTINGS_BYTES)?;
    let value = genai_config_schema::parse_strict(&text)
        .map_err(|error| BuildError::input(path, "", format!("is not valid JSON: {error}")))?;
    match value {
        Value::Object(_) => Ok(value),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(BuildError::input(path, "", "must hold a JSON object"))
        }
    }
}

/// What is wrong with a file is told as it is; the rest is what the system says.
fn refused(path: &Path) -> impl FnOnce(io::Error) -> BuildError {
    let path = path.to_owned();
    move |source| {
        use io::ErrorKind::{FileTooLarge, InvalidData, InvalidInput};
        if [FileTooLarge, InvalidData, InvalidInput].contains(&source.kind()) {
            return BuildError::input(&path, "", source.to_string());
        }
        BuildError::read(&path)(source)
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
