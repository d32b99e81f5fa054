//! Reading, writing and overlays.

use std::io;
use std::path::Path;

use serde_json::Value;

use crate::parse::{MAX_BYTES, parse};
use crate::report::Report;
use crate::{ConfigCode, ConfigErrors, GenaiConfig, check, overlay, read_regular_text, rules};

impl GenaiConfig {
    /// Reads a file's text.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it, each with its JSON path: up to [`MAX_ERRORS`] entries.
    /// Text longer than [`MAX_BYTES`] or nested deeper than [`MAX_DEPTH`] is not looked into
    /// further, nor is text that is not JSON.
    ///
    /// [`MAX_ERRORS`]: crate::MAX_ERRORS
    /// [`MAX_DEPTH`]: crate::MAX_DEPTH
    pub fn from_json(text: &str) -> Result<Self, ConfigErrors> {
        let mut report = Report::default();
        let config = parse(text, &mut report).map(|value| accept(value, &mut report));
        report.finish(config)
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// As [`from_json`](Self::from_json), and `unreadable`; the errors name the file.
    pub fn read(path: &Path) -> Result<Self, ConfigErrors> {
        let most = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
        let text = read_regular_text(path, most).map_err(|error| {
            let too_large = error.kind() == io::ErrorKind::FileTooLarge;
            let code = match too_large {
                true => ConfigCode::TooLarge,
                false => ConfigCode::Unreadable,
            };
            let mut report = Report::default();
            report.damage(code, "", error.to_string());
            report.errors()
        });
        text.and_then(|text| Self::from_json(&text))
            .map_err(|errors| ConfigErrors {
                file: Some(path.to_owned()),
                ..errors
            })
    }

    /// The file's text: pretty, keys in the format's order, absent keys left out.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Not by way of a value, which would spell 0.7 as the nearest float64 of a float32.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// Checks a value as if it had been read.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it, each with its JSON path.
    pub fn validate(&self) -> Result<(), ConfigErrors> {
        let mut report = Report::default();
        accept(self.to_value(), &mut report);
        report.finish(Some(()))
    }

    /// A copy with the keys of `text`, a part of a file, laid over this one. Objects merge key by
    /// key, entries of `provider_options` merge by provider name, other lists append, everything
    /// else is replaced.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the overlay or, when nothing is, with the result; nothing
    /// changes then.
    pub fn with_overlay(&self, text: &str) -> Result<Self, ConfigErrors> {
        let mut report = Report::default();
        let overlay = parse(text, &mut report).map(|mut value| {
            check::check(&mut value, true, &mut report);
            value
        });
        let overlay = report.finish(overlay)?;
        let mut merged = self.to_value();
        overlay::merge(&mut merged, overlay);
        let mut report = Report::default();
        let config = accept(merged, &mut report);
        report.finish(Some(config))
    }

    fn to_value(&self) -> Value {
        // Keys are strings and numbers are plain, the only things that serialising could refuse.
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// Checks a whole file's value; what cannot be used reads as absent.
fn accept(mut value: Value, report: &mut Report) -> GenaiConfig {
    if !check::check(&mut value, false, report) {
        return GenaiConfig::default();
    }
    let config = serde_json::from_value(value).unwrap_or_else(|error| {
        report.damage(ConfigCode::WrongType, "", error.to_string());
        GenaiConfig::default()
    });
    rules::check(&config, report);
    config
}
