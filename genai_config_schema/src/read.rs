//! Reading and writing.

use std::path::Path;

use crate::{ConfigCode, ConfigError, ConfigErrors, GenaiConfig};

impl GenaiConfig {
    /// Reads a file's text.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it, each with its JSON path.
    pub fn from_json(text: &str) -> Result<Self, ConfigErrors> {
        let config: Self = serde_json::from_str(text)
            .map_err(|error| ConfigError::new(ConfigCode::NotJson, "", error.to_string()))?;
        config.validate()?;
        Ok(config)
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// As [`from_json`](Self::from_json), and `unreadable`; the errors name the file.
    pub fn read(path: &Path) -> Result<Self, ConfigErrors> {
        let read = || {
            let text = std::fs::read_to_string(path)
                .map_err(|error| ConfigError::new(ConfigCode::Unreadable, "", error.to_string()))?;
            Self::from_json(&text)
        };
        read().map_err(|errors: ConfigErrors| ConfigErrors {
            file: Some(path.to_owned()),
            ..errors
        })
    }

    /// The file's text: pretty, keys in the format's order, absent keys left out.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Checks a value as if it had been read.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it, each with its JSON path.
    pub fn validate(&self) -> Result<(), ConfigErrors> {
        ConfigErrors::check(Vec::new())
    }
}
