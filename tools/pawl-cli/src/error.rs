//! Errors of the command line; each prints as one message.

use pawl::LoadError;
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
    #[error("{}", in_flags(.0))]
    Load(#[from] LoadError),
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

/// An error in which options of the library are named as those of the command line.
fn in_flags(error: &LoadError) -> String {
    let told = error.to_string();
    let of_options = matches!(
        error,
        LoadError::Option { .. } | LoadError::Speculation(_) | LoadError::Memory { .. }
    );
    match of_options {
        true => flags(&told),
        false => told,
    }
}

/// The same for what the library says of options elsewhere. A plan that follows in further lines stays as it is.
pub(crate) fn flags(told: &str) -> String {
    const NAMES: [(&str, &str); 6] = [
        ("max_batch_size", "--max-batch-size"),
        ("kv_blocks", "--kv-blocks"),
        ("max_drafts", "--max-drafts"),
        ("tree_nodes", "--tree-nodes"),
        ("but speculation is", "but --speculation is"),
        ("option window", "option --window"),
    ];
    let (first, rest) = told.split_at(told.find('\n').unwrap_or(told.len()));
    let named = NAMES.iter().fold(first.to_owned(), |told, (name, flag)| {
        told.replace(name, flag)
    });
    named + rest
}
