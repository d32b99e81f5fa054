//! Which model it is, for states that outlive the process.

use super::graph_io::{ExternalData, GraphIo};
use super::source::Source;
use crate::error::LoadError;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Identifies graphs and weights. It is a hash over the graph files of decoder and head (whole; the first and the last
/// part of one that is large because it holds its weights), and, for every weight outside of them, its place and the
/// first, the middle and the last page of its values. So it costs milliseconds, and two models that differ have different
/// fingerprints unless they differ only inside of large weights.
///
/// `genai_config.json` is not part of it, nor is the tokenizer: how requests are batched, sampled or ended does not change
/// what a state means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fingerprint([u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Raised when the way it is made changes.
const SCHEME: &[u8] = b"pawl fingerprint 1";
/// Bytes of a page of values.
const PAGE: u64 = 4096;
/// Bytes at either end of a graph file that are hashed.
const GRAPH: u64 = 32 << 20;

impl Fingerprint {
    /// One that no model has.
    #[cfg(test)]
    pub(crate) fn test(byte: u8) -> Self {
        Self([byte; 32])
    }

    /// Of the files of a model that were checked.
    pub(super) fn of(source: &Source) -> Result<Self, LoadError> {
        let mut hasher = Hasher {
            folder: &source.folder,
            hash: Sha256::new_with_prefix(SCHEME),
            files: HashMap::new(),
        };
        for graph in [Some(&source.decoder), source.head.as_ref()]
            .into_iter()
            .flatten()
        {
            hasher.graph(&graph.name, &graph.io)?;
        }
        Ok(Self(hasher.hash.finalize().into()))
    }
}

struct Hasher<'a> {
    folder: &'a Path,
    hash: Sha256,
    files: HashMap<PathBuf, File>,
}

impl Hasher<'_> {
    fn graph(&mut self, name: &str, io: &GraphIo) -> Result<(), LoadError> {
        let path = self.folder.join(name);
        let size = std::fs::metadata(&path).map(|found| found.len());
        let size = size.map_err(|source| file_error(&path, source))?;
        self.number(size);
        self.bytes(&path, 0, size.min(GRAPH))?;
        self.bytes(&path, size.saturating_sub(GRAPH).max(GRAPH).min(size), size)?;
        for weight in io.weights() {
            if let (Some(place), Some(bytes)) = (&weight.external, weight.bytes()) {
                self.weight(place, place.length.unwrap_or(bytes))?;
            }
        }
        Ok(())
    }

    fn weight(&mut self, place: &ExternalData, bytes: u64) -> Result<(), LoadError> {
        let path = self.folder.join(&place.location);
        self.number(place.offset);
        self.number(bytes);
        let end = place.offset.saturating_add(bytes);
        let last = end.saturating_sub(PAGE).max(place.offset);
        for from in [place.offset, place.offset + bytes / 2, last] {
            self.bytes(&path, from, end.min(from.saturating_add(PAGE)))?;
        }
        Ok(())
    }

    fn number(&mut self, number: u64) {
        self.hash.update(number.to_le_bytes());
    }

    /// Hashes a part of a file, read piece by piece.
    fn bytes(&mut self, path: &Path, from: u64, to: u64) -> Result<(), LoadError> {
        self.part(path, from, to)
            .map_err(|source| file_error(path, source))
    }

    fn part(&mut self, path: &Path, from: u64, to: u64) -> io::Result<()> {
        if !self.files.contains_key(path) {
            self.files.insert(path.to_path_buf(), File::open(path)?);
        }
        let Some(file) = self.files.get_mut(path) else {
            return Ok(());
        };
        file.seek(SeekFrom::Start(from))?;
        let mut part = file.take(to.saturating_sub(from));
        io::copy(&mut part, &mut Updates(&mut self.hash)).map(|_| ())
    }
}

/// A hash that bytes are written to.
struct Updates<'a>(&'a mut Sha256);

impl io::Write for Updates<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn file_error(path: &Path, source: io::Error) -> LoadError {
    LoadError::File {
        path: path.to_path_buf(),
        source,
    }
}
