//! Exports of fixtures into temporary folders.

use pawl::{LoadOptions, Model};
use pawl_builder::{BuildOptions, BuildRequest, CheckpointOption};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// An exported model; the folder goes when this does.
#[derive(Debug)]
pub struct Export {
    folder: TempDir,
}

impl Export {
    /// Exports a fixture for the CPU.
    ///
    /// # Panics
    ///
    /// When it cannot be exported.
    #[must_use]
    pub fn of(name: &str, checkpoints: CheckpointOption) -> Self {
        Self::with(&crate::checkpoint(name), |options| {
            options.checkpoints = checkpoints
        })
    }

    /// Exports a checkpoint folder with changed options.
    ///
    /// # Panics
    ///
    /// When it cannot be exported.
    #[must_use]
    pub fn with(input: &Path, change: impl FnOnce(&mut BuildOptions)) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut options = BuildOptions::default();
        change(&mut options);
        let request = BuildRequest::new(input, folder.path().join("model"), options);
        let staged = pawl_builder::build(&request, &mut ()).expect("the fixture exports");
        staged.publish().expect("the export is published");
        Self { folder }
    }

    /// The model folder.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("model")
    }

    /// Loads it.
    ///
    /// # Panics
    ///
    /// When it cannot be loaded.
    #[must_use]
    pub fn load(&self, options: &LoadOptions) -> Model {
        Model::load(self.path(), options).unwrap_or_else(|e| panic!("{e}"))
    }
}
