//! The one ONNX Runtime environment of the process.

#![allow(unsafe_code)]

use super::library::{Library, LibraryError, Version, locate};
use crate::settings;
use ort::environment::Environment;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// ONNX Runtime as loaded by this process.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) environment: Environment,
    pub(crate) path: PathBuf,
    pub(crate) version: Version,
}

/// Which ONNX Runtime is wanted, and how new it must be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// Explicit path; otherwise it is looked up.
    pub(crate) library: Option<&'a Path>,
    /// Oldest usable version.
    pub(crate) version: Version,
    /// Provider that needs the version, for messages.
    pub(crate) provider: &'static str,
}

impl Default for Wanted<'_> {
    fn default() -> Self {
        Self {
            library: None,
            version: Version::CPU,
            provider: "the CPU provider",
        }
    }
}

/// The ONNX Runtime of this process.
///
/// ```no_run
/// let info = pawl::check_library(None)?;
/// println!("ONNX Runtime {} at {}", info.version, info.path.display());
/// # Ok::<(), pawl::LibraryError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LibraryInfo {
    /// The file, absolute and without links.
    pub path: PathBuf,
    /// Its version, such as `1.32.0`.
    pub version: String,
}

/// Loads ONNX Runtime as [`Model::load`](crate::Model::load) would for the CPU provider, and says which one it is: what
/// costs much and ends with loading a model can ask first. `library` is the path to load; `None` looks it up as
/// [`LoadOptions::library`](crate::LoadOptions::library) says.
///
/// A library that passes stays loaded: a process holds one for its whole life. One that is refused does not.
///
/// # Errors
/// The library is missing, is something else, is too old, or does not start; or the process holds another one.
///
/// ```
/// use pawl::{ErrorCode, check_library};
///
/// let nowhere = std::path::Path::new("no/such/libonnxruntime.so");
/// let error = check_library(Some(nowhere)).unwrap_err();
/// assert_eq!(error.code(), ErrorCode::LibraryNotFound);
/// assert!(error.to_string().contains("no/such/libonnxruntime.so"));
/// ```
pub fn check_library(library: Option<&Path>) -> Result<LibraryInfo, LibraryError> {
    let wanted = Wanted {
        library,
        ..Wanted::default()
    };
    load(wanted).map(|loaded| LibraryInfo {
        path: loaded.path.clone(),
        version: loaded.version.to_string(),
    })
}

/// The version of ONNX Runtime that this process holds, once it does.
pub(crate) fn loaded_version() -> Option<String> {
    Some(LOADED.get()?.version.to_string())
}

static LOADED: OnceLock<Loaded> = OnceLock::new();
static LOADING: Mutex<()> = Mutex::new(());

/// The environment for CPU sessions, from the library that the usual lookup finds.
#[cfg(test)]
pub(crate) fn environment() -> Result<&'static Environment, LibraryError> {
    load(Wanted::default()).map(|loaded| &loaded.environment)
}

/// Loads ONNX Runtime, or returns what is loaded already. A process holds one library for its whole life: once one
/// is loaded, a request without a path reuses it, and a request for another path is an error.
pub(crate) fn load(wanted: Wanted<'_>) -> Result<&'static Loaded, LibraryError> {
    let _one_at_a_time = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    match LOADED.get() {
        Some(loaded) => reuse(loaded, wanted),
        None => {
            let loaded = start(wanted)?;
            Ok(LOADED.get_or_init(|| loaded))
        }
    }
}

fn reuse<'a>(loaded: &'a Loaded, wanted: Wanted<'_>) -> Result<&'a Loaded, LibraryError> {
    if let Some(library) = wanted.library {
        let asked = locate(Some(library), None, None)?;
        if asked != loaded.path {
            return Err(LibraryError::AlreadyLoaded {
                loaded: loaded.path.clone(),
                asked,
            });
        }
    }
    Library::check(
        &loaded.path,
        loaded.version,
        wanted.version,
        wanted.provider,
    )?;
    Ok(loaded)
}

/// Switches ONNX Runtime's telemetry off.
const QUIET: &str = "ORT_DISABLE_TELEMETRY";

/// Keeps ONNX Runtime from gathering telemetry. Its published libraries start to when an environment is made, before the
/// interface for switching it off can be reached: they keep a database in the user's cache folder, a session file in
/// the folder of temporary files, and send what they gather. Only this variable is looked at before.
fn keep_quiet() {
    // SAFETY: this runs once in a process, under a lock, before the library is loaded, so no thread of Pawl or ONNX
    // Runtime reads the environment meanwhile, and Rust's own readers take a lock of their own. A host program whose
    // other threads call C functions that read it must load its first model before it starts them.
    unsafe { std::env::set_var(QUIET, "1") };
}

fn start(wanted: Wanted<'_>) -> Result<Loaded, LibraryError> {
    let variable = settings::library();
    let executable = std::env::current_exe().ok();
    let path = locate(wanted.library, variable.as_deref(), executable.as_deref())?;
    keep_quiet();
    let library = Library::open(&path)?;
    library.require(wanted.version, wanted.provider)?;
    let failed = |reason: String| LibraryError::Start {
        path: path.clone(),
        reason,
    };
    // The environment is named explicitly and telemetry is off: nothing may leave the machine.
    let environment = ort::init_from(&path)
        .map_err(|error| failed(error.to_string()))?
        .with_name("pawl")
        .with_telemetry(false)
        .build()
        .map_err(|error| failed(error.to_string()))?;
    tracing::info!(path = %path.display(), version = %library.version, "loaded ONNX Runtime");
    Ok(Loaded {
        environment,
        path: path.clone(),
        version: library.version,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_library_serves_the_process() {
        let first = load(Wanted::default()).unwrap();
        assert!(first.version >= Version::CPU);
        assert!(std::ptr::eq(first, load(Wanted::default()).unwrap()));
        let info = check_library(None).unwrap();
        assert_eq!(info.path, first.path);
        assert_eq!(info.version, first.version.to_string());

        let same = Wanted {
            library: Some(&first.path),
            ..Wanted::default()
        };
        assert!(load(same).is_ok());

        let other = tempfile::NamedTempFile::new().unwrap();
        let error = load(Wanted {
            library: Some(other.path()),
            ..Wanted::default()
        })
        .unwrap_err();
        assert!(
            matches!(error, LibraryError::AlreadyLoaded { .. }),
            "{error}"
        );

        let newer = Wanted {
            version: Version {
                minor: 999,
                ..Version::CPU
            },
            ..Wanted::default()
        };
        assert!(matches!(load(newer), Err(LibraryError::TooOld { .. })));
    }
}
