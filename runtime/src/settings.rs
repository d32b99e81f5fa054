//! Every environment variable Pawl reads, and the only place that reads any.
//!
//! An explicit option always wins over its variable, and a variable over the built-in default. A variable that is
//! set but empty counts as not set; one that cannot be understood is an error, never ignored.

use crate::speculate::{DraftPolicy, Speculation};
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

/// One environment variable: its name and what it does, for help texts.
///
/// ```
/// for setting in pawl::settings() {
///     println!("{}: {}", setting.name, setting.meaning);
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Setting {
    /// Name of the variable.
    pub name: &'static str,
    /// What it sets, and what happens without it.
    pub meaning: &'static str,
}

/// The ONNX Runtime library to load.
const LIBRARY: Setting = Setting {
    name: "ORT_DYLIB_PATH",
    meaning: "path of the ONNX Runtime library; without it the library is looked up beside the executable, then \
              in `.ort/1.32.0` of a folder above the executable",
};

/// Threads of one operator.
pub(crate) const THREADS: Setting = Setting {
    name: "PAWL_THREADS",
    meaning: "threads that one operator may use; without it as many as the machine has cores",
};

/// Where drafts come from.
pub(crate) const SPECULATION: Setting = Setting {
    name: "PAWL_SPECULATION",
    meaning: "where drafts come from: off, ngram, mtp, tree or auto; without it mtp where the model has a head, else ngram",
};

/// Whether the number of drafts follows what they bring.
const DRAFT_POLICY: Setting = Setting {
    name: "PAWL_DRAFT_POLICY",
    meaning: "`adaptive` drafts as much as pays, `fixed` always as much as allowed; without it adaptive",
};

/// What steps cost.
const COST_FOLDER: Setting = Setting {
    name: "PAWL_COST_FOLDER",
    meaning: "folder that keeps what steps cost, by model and machine, for adaptive drafting; `off` keeps nothing; without it \
              the command line uses the user's cache folder, and programs that embed Pawl keep nothing",
};

/// Audits of the engine.
const AUDIT: Setting = Setting {
    name: "PAWL_AUDIT",
    meaning: "`on` checks the invariants of the state around every step, `off` does not; without it they are checked in \
              builds with debug assertions only",
};

/// Every setting, for help texts.
///
/// ```
/// assert!(pawl::settings().iter().any(|s| s.name == "ORT_DYLIB_PATH"));
/// ```
#[must_use]
pub fn settings() -> &'static [Setting] {
    &[
        LIBRARY,
        THREADS,
        SPECULATION,
        DRAFT_POLICY,
        COST_FOLDER,
        AUDIT,
    ]
}

/// A variable whose value cannot be understood.
///
/// ```no_run
/// use pawl::{LoadError, LoadOptions, Model};
///
/// if let Err(LoadError::Setting(error)) = Model::load("demo/tiny-python", &LoadOptions::new()) {
///     eprintln!("unset {} or give it {}", error.name, error.expected);
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("environment variable {name} is `{value}`, expected {expected}")]
#[non_exhaustive]
pub struct SettingError {
    /// Name of the variable.
    pub name: &'static str,
    /// Its value, as far as it is text.
    pub value: String,
    /// What it may be.
    pub expected: &'static str,
}

/// `ORT_DYLIB_PATH`.
pub(crate) fn library() -> Option<PathBuf> {
    read(LIBRARY).map(PathBuf::from)
}

/// `PAWL_SPECULATION`.
pub(crate) fn speculation() -> Result<Option<Speculation>, SettingError> {
    let expected = "off, ngram, mtp, tree or auto";
    read(SPECULATION)
        .map(|value| parse(SPECULATION, value, expected))
        .transpose()
}

/// `PAWL_DRAFT_POLICY`.
pub(crate) fn draft_policy() -> Result<Option<DraftPolicy>, SettingError> {
    let expected = "adaptive or fixed";
    read(DRAFT_POLICY)
        .map(|value| parse(DRAFT_POLICY, value, expected))
        .transpose()
}

/// `PAWL_COST_FOLDER`: `None` where it is not set, `Some(None)` where nothing is to be kept.
pub(crate) fn cost_folder() -> Option<Option<PathBuf>> {
    let folder = read(COST_FOLDER)?;
    Some((folder != "off").then(|| PathBuf::from(folder)))
}

/// A value of a type that can be written as text.
fn parse<T: FromStr>(
    setting: Setting,
    value: OsString,
    expected: &'static str,
) -> Result<T, SettingError> {
    let parsed = value.to_str().and_then(|text| text.trim().parse().ok());
    parsed.ok_or_else(|| SettingError {
        name: setting.name,
        value: value.to_string_lossy().into_owned(),
        expected,
    })
}

/// `PAWL_THREADS`.
pub(crate) fn threads() -> Result<Option<NonZeroUsize>, SettingError> {
    read(THREADS).map(parse_threads).transpose()
}

fn parse_threads(value: OsString) -> Result<NonZeroUsize, SettingError> {
    value
        .to_str()
        .and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| SettingError {
            name: THREADS.name,
            value: value.to_string_lossy().into_owned(),
            expected: "a whole number from 1",
        })
}

/// `PAWL_AUDIT`.
pub(crate) fn audit() -> Result<Option<bool>, SettingError> {
    read(AUDIT).map(parse_audit).transpose()
}

fn parse_audit(value: OsString) -> Result<bool, SettingError> {
    match value.to_str().map(str::trim) {
        Some("on" | "1" | "true") => Ok(true),
        Some("off" | "0" | "false") => Ok(false),
        _ => Err(SettingError {
            name: AUDIT.name,
            value: value.to_string_lossy().into_owned(),
            expected: "on or off",
        }),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one reader of the environment"
)]
fn read(setting: Setting) -> Option<OsString> {
    std::env::var_os(setting.name).filter(|value| !value.is_empty())
}

/// How many times as many random scripts the tests run as usually.
#[cfg(test)]
pub(crate) fn effort() -> u32 {
    const EFFORT: Setting = Setting {
        name: "PAWL_TEST_EFFORT",
        meaning: "how many times as many random scripts are to run",
    };
    let effort = read(EFFORT).and_then(|effort| effort.to_str()?.parse().ok());
    effort.unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_a_positive_number_or_an_error_that_names_the_variable() {
        assert_eq!(parse_threads(" 3 ".into()).unwrap().get(), 3);
        for bad in ["0", "-1", "1.9", "many"] {
            let message = parse_threads(bad.into()).unwrap_err().to_string();
            assert!(
                message.contains("PAWL_THREADS") && message.contains(bad),
                "{message}"
            );
        }
    }

    #[test]
    fn audits_are_on_or_off_or_an_error_that_names_the_variable() {
        assert_eq!(parse_audit(" on".into()), Ok(true));
        assert_eq!(parse_audit("off".into()), Ok(false));
        let message = parse_audit("yes please".into()).unwrap_err().to_string();
        assert!(message.contains("PAWL_AUDIT") && message.contains("yes please"));
    }

    #[test]
    fn names_are_unique_and_explained() {
        let all = settings();
        for (i, setting) in all.iter().enumerate() {
            assert!(!setting.meaning.is_empty());
            assert!(
                all.iter()
                    .skip(i + 1)
                    .all(|other| other.name != setting.name)
            );
        }
    }
}
