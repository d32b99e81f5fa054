//! Collects everything that is wrong with a file.

use crate::{ConfigCode, ConfigError, ConfigErrors, path};

/// Most errors that are collected from one file.
pub const MAX_ERRORS: usize = 1000;

/// The errors so far, and the places whose value could not be used.
///
/// A place that could not be used reads as absent to later rules; what they say about it, or about
/// something that contains it, would be a consequence of the first error and is not reported.
#[derive(Debug, Default)]
pub(crate) struct Report {
    errors: Vec<ConfigError>,
    damaged: Vec<String>,
}

impl Report {
    /// Records an error that leaves every value usable.
    pub(crate) fn note(&mut self, code: ConfigCode, path: &str, message: impl Into<String>) {
        if !self.is_full() {
            self.errors.push(ConfigError::new(code, path, message));
        }
    }

    /// Records an error that makes the value at `path` unusable.
    pub(crate) fn damage(&mut self, code: ConfigCode, path: &str, message: impl Into<String>) {
        if !self.is_full() {
            self.damaged.push(path.to_owned());
        }
        self.note(code, path, message);
    }

    /// Records an error about usable values; dropped where it follows from an unusable one.
    pub(crate) fn rule(&mut self, code: ConfigCode, path: &str, message: impl Into<String>) {
        if !self.is_full() && !self.damaged_near(path) {
            self.note(code, path, message);
        }
    }

    /// True when the value at `path`, a part of it or what contains it is unusable.
    pub(crate) fn damaged_near(&self, path: &str) -> bool {
        self.damaged.iter().any(|at| path::related(at, path))
    }

    /// True when no more errors are collected.
    pub(crate) fn is_full(&self) -> bool {
        self.errors.len() >= MAX_ERRORS
    }

    /// True when an error with this code was recorded.
    pub(crate) fn has(&self, code: ConfigCode) -> bool {
        self.errors.iter().any(|error| error.code == code)
    }

    /// What is wrong.
    pub(crate) fn errors(self) -> ConfigErrors {
        ConfigErrors {
            file: None,
            errors: self.errors,
        }
    }

    /// `value` when nothing is wrong. There is always a value then.
    pub(crate) fn finish<T>(self, value: Option<T>) -> Result<T, ConfigErrors> {
        match value {
            Some(value) if self.errors.is_empty() => Ok(value),
            _ => Err(self.errors()),
        }
    }
}
