//! Errors of the command line; each prints as one message.

use std::path::PathBuf;

/// Why a command stopped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// An option or a combination of options.
    #[error("{0}")]
    Usage(String),
    /// A file given on the command line.
    #[error("`{path}`: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The model could not be loaded.
    #[error(transparent)]
    Load(#[from] pawl::LoadError),
    /// A chat template could not be read or rendered.
    #[error(transparent)]
    Template(#[from] pawl::TemplateError),
    /// A prompt was refused.
    #[error("prompt {index}: {source}")]
    Prompt {
        /// Its place among the prompts.
        index: usize,
        /// Why.
        source: pawl::SubmitError,
    },
    /// A prompt could not be finished.
    #[error("prompt {index}: {source}")]
    Generate {
        /// Its place among the prompts.
        index: usize,
        /// Why.
        source: pawl::GenerateError,
    },
    /// An evaluation failed.
    #[error(transparent)]
    Engine(#[from] pawl::EngineError),
    /// Standard output is closed or full.
    #[error("standard output: {0}")]
    Output(#[from] std::io::Error),
}

impl CliError {
    pub(crate) fn file(path: &std::path::Path, reason: impl ToString) -> Self {
        Self::File {
            path: path.to_path_buf(),
            reason: reason.to_string(),
        }
    }
}
