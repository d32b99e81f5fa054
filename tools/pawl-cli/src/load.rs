//! Options of every command that loads a model.

use crate::error::CliError;
use pawl::{LoadOptions, Model};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// How to load the model.
#[derive(Debug, clap::Args)]
pub(crate) struct LoadArgs {
    /// Threads of one step; all cores by default.
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// The ONNX Runtime library; found by itself by default.
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
}

impl LoadArgs {
    /// The options.
    pub(crate) fn options(&self) -> LoadOptions {
        let mut options = LoadOptions::default();
        if let Some(threads) = self.threads {
            options = options.threads(threads.get());
        }
        if let Some(library) = &self.library {
            options = options.library(library);
        }
        options
    }

    /// Loads a model folder.
    pub(crate) fn load(&self, folder: &Path) -> Result<Model, CliError> {
        Ok(Model::load(folder, &self.options())?)
    }
}

/// Token ids as `1,2,3`.
#[derive(Clone, Debug)]
pub(crate) struct Ids(pub(crate) Vec<u32>);

impl std::str::FromStr for Ids {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let id = |part: &str| {
            part.trim()
                .parse()
                .map_err(|_| format!("`{part}` is not a token id"))
        };
        text.split(',').map(id).collect::<Result<_, _>>().map(Self)
    }
}
