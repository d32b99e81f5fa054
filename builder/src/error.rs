//! Why a model could not be built.

use std::io;
use std::path::{Path, PathBuf};

use genai_config_schema::{MAX_TOLD, quoted, shortened};
use pawl_models::DescribeError;
use thiserror::Error;

use crate::options::OptionsError;

/// Why a model could not be built. Messages name the file and the key or tensor; nothing was left
/// where the output would have been.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Options that cannot be combined.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// A file or folder could not be read.
    #[error("{}: cannot be read: {source}", file.display())]
    Read {
        /// The file or folder.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file or folder could not be written.
    #[error("{}: cannot be written: {source}", file.display())]
    Write {
        /// The file or folder.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A settings file or checkpoint is not what it should be.
    #[error("{}: {key}{separator}{problem}", file.display(), separator = if key.is_empty() { "" } else { ": " })]
    Input {
        /// The file or folder.
        file: PathBuf,
        /// Key or tensor in it; empty where the whole file is meant.
        key: String,
        /// What is wrong: what was expected and what was found.
        problem: String,
    },
    /// The checkpoint describes no model that Pawl knows.
    #[error("{}: {source}", folder.display())]
    Describe {
        /// The checkpoint's folder.
        folder: PathBuf,
        /// Why.
        source: DescribeError,
    },
    /// The model is known, but the target has no operator for a part of it.
    #[error("{part} cannot be built for this target: {reason}")]
    Unsupported {
        /// The part of the model, or the key of `config.json`.
        part: String,
        /// Why, and what would work.
        reason: String,
    },
    /// There is something where the output should go.
    #[error("{}: exists already; --force replaces it", path.display())]
    OutputExists {
        /// The output folder.
        path: PathBuf,
    },
    /// The output path can never hold a model, or holds what must not be replaced.
    #[error("{}: {problem}", path.display())]
    OutputPath {
        /// The output folder.
        path: PathBuf,
        /// Why.
        problem: String,
    },
    /// The disk of the output has too little room. Nothing was written.
    #[error("{}: the model takes {needed} bytes, {free} bytes are free on its disk", folder.display())]
    NoRoom {
        /// The folder in which the output would have been.
        folder: PathBuf,
        /// Bytes of weights and of the files that go along.
        needed: u64,
        /// Bytes that may be written.
        free: u64,
    },
    /// [`Interrupt::stop`](crate::Interrupt::stop) was called.
    #[error("the build was interrupted")]
    Interrupted,
    /// A graph contradicts itself: a defect of this program, not of the input.
    #[error("defect in the exporter: {file}: {name}: {problem}")]
    Defect {
        /// The file that would have been written.
        file: String,
        /// Node, value or initializer.
        name: String,
        /// The contradiction.
        problem: String,
    },
}

impl BuildError {
    pub(crate) fn read(file: &Path) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        |source| Self::Read { file, source }
    }

    pub(crate) fn write(file: &Path) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        |source| Self::Write { file, source }
    }

    pub(crate) fn input(file: &Path, key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Input {
            file: file.to_owned(),
            key: quoted(&key.into()).into_owned(),
            problem: shortened(&problem.into(), MAX_TOLD).into_owned(),
        }
    }

    pub(crate) fn defect(file: &str, name: &str, problem: impl Into<String>) -> Self {
        Self::Defect {
            file: file.to_owned(),
            name: name.to_owned(),
            problem: problem.into(),
        }
    }
}
