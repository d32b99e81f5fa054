//! Exports of fixtures into temporary folders.

use pawl::{LoadOptions, Model};
use pawl_builder::{BuildOptions, BuildRequest, CheckpointOption, MtpWeights};
use serde_json::{Value, json};
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

    /// Exports a fixture for the CPU, with a head as exact as the model.
    ///
    /// # Panics
    ///
    /// When it cannot be exported.
    #[must_use]
    pub fn exact(name: &str, checkpoints: CheckpointOption) -> Self {
        Self::with(&crate::checkpoint(name), |options| {
            options.checkpoints = checkpoints;
            options.mtp_weights = Some(MtpWeights::Same);
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

    /// Changes the configuration.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn edit_config(&self, change: impl FnOnce(&mut Value)) {
        let path = self.path().join("genai_config.json");
        let text = std::fs::read_to_string(&path).expect("a configuration");
        let mut config = serde_json::from_str(&text).expect("a configuration in JSON");
        change(&mut config);
        std::fs::write(path, config.to_string()).expect("the configuration is written");
    }

    /// Gives the model a tokenizer in which every token is a [`word`].
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    pub fn name_tokens(&self) {
        let mut vocab = 0;
        self.edit_config(|config| vocab = config["model"]["vocab_size"].as_u64().unwrap_or(0));
        let words = (0..vocab as u32).map(|id| (word(id), Value::from(id)));
        let tokenizer = json!({
            "version": "1.0",
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "model": {
                "type": "WordLevel",
                "unk_token": word(0),
                "vocab": words.collect::<serde_json::Map<_, _>>(),
            },
        });
        let path = self.path().join("tokenizer.json");
        std::fs::write(path, tokenizer.to_string()).expect("the tokenizer is written");
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

/// What [`Export::name_tokens`] calls a token; none is part of another.
#[must_use]
pub fn word(id: u32) -> String {
    format!("w{id:05}")
}
