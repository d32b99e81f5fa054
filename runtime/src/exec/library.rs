//! Where the ONNX Runtime library is, and whether it is one that Pawl can use.

#![allow(unsafe_code)]

use elf::ElfStream;
use elf::abi::PT_LOAD;
use elf::endian::AnyEndian;
use genai_config_schema::open_regular;
use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::path::{Path, PathBuf};

/// Folder that `cargo xtask setup` unpacks into, below a folder above the executable.
const SETUP_FOLDER: &str = ".ort/1.32.0";

/// File name of the library on this platform.
const FILE_NAME: &str = if cfg!(windows) {
    "onnxruntime.dll"
} else if cfg!(target_vendor = "apple") {
    "libonnxruntime.dylib"
} else {
    "libonnxruntime.so"
};

/// A version of ONNX Runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) patch: u32,
}

impl Version {
    /// Oldest version whose CPU provider has every operator that an export may use.
    pub(crate) const CPU: Self = Self::new(1, 32, 0);
    /// Oldest version for the CUDA provider: what its published packages offer.
    pub(crate) const CUDA: Self = Self::new(1, 31, 0);

    const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self {
            major,
            minor,
            patch,
        }
    }

    /// Reads `1.32.0`, with anything after the third number ignored (`1.32.0-rc1`).
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?.parse().ok()?;
        let digits = |part: &str| {
            part.chars()
                .take_while(char::is_ascii_digit)
                .collect::<String>()
        };
        let patch = parts
            .next()
            .map_or(Some(0), |part| digits(part).parse().ok())?;
        Some(Self::new(major, minor, patch))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Why ONNX Runtime could not be loaded.
///
/// ```
/// use pawl::{LibraryError, check_library};
///
/// let error = check_library(Some("no/such/library.so".as_ref())).unwrap_err();
/// assert!(matches!(error, LibraryError::NotAFile { .. }));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LibraryError {
    /// A path given by an option or by `ORT_DYLIB_PATH` is not a file.
    #[error(
        "{origin} names `{path}`, which is not a file; give the path of the ONNX Runtime library ({FILE_NAME})"
    )]
    NotAFile {
        /// What gave the path.
        origin: &'static str,
        /// The path.
        path: PathBuf,
    },
    /// The library is nowhere that Pawl looks.
    #[error(
        "ONNX Runtime ({FILE_NAME}) was not found; run `cargo xtask setup`, or set ORT_DYLIB_PATH to a library of \
         version {} or later. Looked in: {}", Version::CPU, list(.searched)
    )]
    NotFound {
        /// Every path that was tried.
        searched: Vec<PathBuf>,
    },
    /// The operating system could not load the file.
    #[error("`{path}` cannot be loaded as a library: {reason}")]
    Unloadable {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        reason: String,
    },
    /// The file is a library, but not ONNX Runtime.
    #[error("`{path}` is not ONNX Runtime: {reason}")]
    NotOnnxRuntime {
        /// The file.
        path: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// The library is older than Pawl needs.
    #[error(
        "ONNX Runtime {found} at `{path}` is too old: {provider} needs {required} or later; run `cargo xtask setup` \
         or set ORT_DYLIB_PATH"
    )]
    TooOld {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: String,
        /// Oldest version that works.
        required: String,
        /// The provider that needs it.
        provider: &'static str,
    },
    /// A process can hold one library; another is already in use.
    #[error("ONNX Runtime is already loaded from `{loaded}`; a process cannot also load `{asked}`")]
    AlreadyLoaded {
        /// The library in use.
        loaded: PathBuf,
        /// The other one.
        asked: PathBuf,
    },
    /// ONNX Runtime loaded but refused to start.
    #[error("ONNX Runtime at `{path}` did not start: {reason}")]
    Start {
        /// The file.
        path: PathBuf,
        /// What it said.
        reason: String,
    },
}

fn list(paths: &[PathBuf]) -> String {
    let quoted: Vec<String> = paths.iter().map(|p| format!("`{}`", p.display())).collect();
    quoted.join(", ")
}

/// Finds the library: `explicit`, then `variable` (`ORT_DYLIB_PATH`), then beside `executable`, then in
/// `.ort/1.32.0` of each folder above it. The working directory is never searched.
pub(crate) fn locate(
    explicit: Option<&Path>,
    variable: Option<&Path>,
    executable: Option<&Path>,
) -> Result<PathBuf, LibraryError> {
    for (origin, path) in [
        ("the library option", explicit),
        ("ORT_DYLIB_PATH", variable),
    ] {
        if let Some(path) = path {
            return file(path).ok_or_else(|| LibraryError::NotAFile {
                origin,
                path: path.to_path_buf(),
            });
        }
    }
    let searched = candidates(executable);
    match searched.iter().find_map(|path| file(path)) {
        Some(path) => Ok(path),
        None => Err(LibraryError::NotFound { searched }),
    }
}

fn candidates(executable: Option<&Path>) -> Vec<PathBuf> {
    let folders = || {
        executable
            .into_iter()
            .flat_map(|exe| exe.ancestors().skip(1))
    };
    let beside = folders().take(1).map(|folder| folder.join(FILE_NAME));
    let above = folders().map(|folder| folder.join(SETUP_FOLDER).join(FILE_NAME));
    beside.chain(above).collect()
}

/// The absolute path without links, if it is a file.
fn file(path: &Path) -> Option<PathBuf> {
    let path = path.canonicalize().ok()?;
    path.is_file().then_some(path)
}

/// Beginning of the structure that `OrtGetApiBase` returns.
#[repr(C)]
struct ApiBase {
    get_api: Option<unsafe extern "system" fn(u32) -> *const c_void>,
    get_version_string: Option<unsafe extern "system" fn() -> *const c_char>,
}

/// A library that is loaded and is ONNX Runtime. Loading is counted by the operating system: dropping this after
/// the binding has loaded the same file does not unload it.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) path: PathBuf,
    pub(crate) version: Version,
    has_interface: bool,
    _handle: libloading::Library,
}

impl Library {
    /// Loads `path` and asks for its version, before the binding (which accepts older ones and hides the operating
    /// system's reason) sees it.
    pub(crate) fn open(path: &Path) -> Result<Self, LibraryError> {
        let unloadable = |reason| LibraryError::Unloadable {
            path: path.to_path_buf(),
            reason,
        };
        require_whole(path).map_err(unloadable)?;
        // SAFETY: loading runs the library's initialisers; the path was chosen by the user or by `cargo xtask
        // setup`, and running that code is what was asked for.
        let handle = unsafe { libloading::Library::new(path) }
            .map_err(|error| unloadable(reason(&error)))?;
        let foreign = |reason| LibraryError::NotOnnxRuntime {
            path: path.to_path_buf(),
            reason,
        };
        let base = api_base(&handle).map_err(foreign)?;
        let text = version_text(base).map_err(foreign)?;
        let version =
            Version::parse(&text).ok_or_else(|| foreign(format!("its version is `{text}`")))?;
        Ok(Self {
            path: path.to_path_buf(),
            version,
            has_interface: has_interface(base),
            _handle: handle,
        })
    }

    /// Refuses a library that is older than `required`, or has not the interface that the binding will ask it for and
    /// use without looking.
    pub(crate) fn require(
        &self,
        required: Version,
        provider: &'static str,
    ) -> Result<(), LibraryError> {
        Self::check(&self.path, self.version, required, provider)?;
        if self.has_interface {
            return Ok(());
        }
        Err(LibraryError::NotOnnxRuntime {
            path: self.path.clone(),
            reason: format!(
                "it says that it is version {}, but has no interface of version {}",
                self.version,
                ort::sys::ORT_API_VERSION
            ),
        })
    }

    /// Refuses a library older than `required`.
    pub(crate) fn check(
        path: &Path,
        found: Version,
        required: Version,
        provider: &'static str,
    ) -> Result<(), LibraryError> {
        if found >= required {
            return Ok(());
        }
        Err(LibraryError::TooOld {
            path: path.to_path_buf(),
            found: found.to_string(),
            required: required.to_string(),
            provider,
        })
    }
}

/// The operating system's own words, which `libloading` keeps in the source of its error.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Refuses a file that is not the whole of a library. The loader maps what the headers announce and reads it: bytes that
/// the file does not have end the process. Other formats than ELF are left to the loaders of their systems.
fn require_whole(path: &Path) -> Result<(), String> {
    let (file, size) = open_regular(path).map_err(|error| error.to_string())?;
    if !cfg!(all(unix, not(target_vendor = "apple"))) {
        return Ok(());
    }
    let elf = ElfStream::<AnyEndian, _>::open_stream(file)
        .map_err(|error| format!("it is not an ELF file, or truncated or damaged: {error}"))?;
    let loaded = elf.segments().iter().filter(|part| part.p_type == PT_LOAD);
    let ends = loaded.map(|part| part.p_offset.checked_add(part.p_filesz));
    let sections = u64::from(elf.ehdr.e_shnum) * u64::from(elf.ehdr.e_shentsize);
    let announced = ends
        .chain([elf.ehdr.e_shoff.checked_add(sections)])
        .try_fold(0, |most: u64, end| Some(most.max(end?)))
        .ok_or("its headers announce more than a file can hold")?;
    if announced > size {
        return Err(format!(
            "it is truncated: its headers announce {announced} bytes, the file has {size}"
        ));
    }
    Ok(())
}

fn api_base(handle: &libloading::Library) -> Result<&ApiBase, String> {
    type GetBase = unsafe extern "system" fn() -> *const ApiBase;
    // SAFETY: a library that exports `OrtGetApiBase` declares it with this signature; any other is not ours to load.
    let get_base = unsafe { handle.get::<GetBase>(b"OrtGetApiBase\0") }
        .map_err(|_| "it does not export `OrtGetApiBase`".to_owned())?;
    // SAFETY: the function takes nothing and may be called at any time.
    let base = unsafe { get_base() };
    // SAFETY: ONNX Runtime returns a static structure or null; it lives as long as the library, which is borrowed.
    unsafe { base.as_ref() }.ok_or_else(|| "`OrtGetApiBase` returned nothing".to_owned())
}

fn version_text(base: &ApiBase) -> Result<String, String> {
    let get = base
        .get_version_string
        .ok_or("it has no function for its version")?;
    // SAFETY: part of the stable head of the interface; takes nothing.
    let text = unsafe { get() };
    if text.is_null() {
        return Err("it has no version".to_owned());
    }
    // SAFETY: a static, nul-terminated string.
    let text = unsafe { CStr::from_ptr(text) };
    Ok(text.to_string_lossy().into_owned())
}

/// Whether the library has the interface of the version that the binding asks for.
fn has_interface(base: &ApiBase) -> bool {
    // SAFETY: part of the stable head of the interface; any number may be asked for, and null means that there is none.
    base.get_api
        .is_some_and(|get| !unsafe { get(ort::sys::ORT_API_VERSION) }.is_null())
}

#[cfg(test)]
#[path = "library_tests.rs"]
mod tests;
