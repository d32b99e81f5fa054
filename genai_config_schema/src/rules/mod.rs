//! Rules between keys, once each value by itself is sound.
//!
//! A required number that could not be read is 0 here; rules take 0 as unknown.

mod drafters;
mod files;
mod genai;
mod groups;
mod names;
mod pawl;
mod sizes;

use crate::report::Report;
use crate::{ConfigCode, GenaiConfig};

/// Checks a whole file.
pub(crate) fn check(config: &GenaiConfig, report: &mut Report) {
    sizes::check(config, report);
    groups::check(config, report);
    drafters::check(config, report);
    names::check(config, report);
    files::check(config, report);
}

/// Reports a required key that is absent.
fn require<T>(value: Option<&T>, at: &str, why: &str, report: &mut Report) {
    if value.is_none() {
        report.rule(
            ConfigCode::MissingKey,
            at,
            format!("the key is required: {why}"),
        );
    }
}
