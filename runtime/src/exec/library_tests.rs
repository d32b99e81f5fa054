//! Lookup order, and every way a library can be unusable.

use super::*;
use std::fs;
use std::process::Command;

/// A folder tree with an executable two folders down.
fn tree() -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let executable = root.path().join("target/debug/app");
    fs::create_dir_all(executable.parent().unwrap()).unwrap();
    fs::write(&executable, b"").unwrap();
    (root, executable)
}

fn put(path: &Path) -> PathBuf {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, b"library").unwrap();
    path.canonicalize().unwrap()
}

#[test]
fn each_place_wins_over_the_ones_after_it() {
    let (root, executable) = tree();
    let above = put(&root.path().join(SETUP_FOLDER).join(FILE_NAME));
    let find = |explicit, variable| locate(explicit, variable, Some(&executable)).unwrap();
    assert_eq!(find(None, None), above);
    let nearer = put(&root
        .path()
        .join("target")
        .join(SETUP_FOLDER)
        .join(FILE_NAME));
    assert_eq!(find(None, None), nearer);
    let beside = put(&root.path().join("target/debug").join(FILE_NAME));
    assert_eq!(find(None, None), beside);
    let variable = put(&root.path().join("variable.so"));
    assert_eq!(find(None, Some(&variable)), variable);
    let explicit = put(&root.path().join("explicit.so"));
    assert_eq!(find(Some(&explicit), Some(&variable)), explicit);
}

#[test]
fn a_named_path_that_is_missing_is_an_error_and_not_a_reason_to_look_elsewhere() {
    let (root, executable) = tree();
    put(&root.path().join("target/debug").join(FILE_NAME));
    let missing = root.path().join("missing.so");
    for (explicit, variable, origin) in [
        (Some(missing.as_path()), None, "the library option"),
        (None, Some(missing.as_path()), "ORT_DYLIB_PATH"),
        (None, Some(root.path()), "ORT_DYLIB_PATH"),
    ] {
        let message = locate(explicit, variable, Some(&executable))
            .unwrap_err()
            .to_string();
        assert!(message.starts_with(origin), "{message}");
        assert!(message.contains(FILE_NAME), "{message}");
    }
}

#[test]
fn nothing_found_names_the_command_and_never_the_working_directory() {
    let (_root, executable) = tree();
    let error = locate(None, None, Some(&executable)).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("cargo xtask setup"), "{message}");
    let LibraryError::NotFound { searched } = error else {
        panic!("{error:?}")
    };
    let above = executable.parent().unwrap();
    assert!(
        searched
            .iter()
            .all(|path| above.starts_with(path.parent().unwrap())
                || path.ends_with(Path::new(SETUP_FOLDER).join(FILE_NAME)))
    );
    assert!(locate(None, None, None).is_err());
}

#[test]
fn a_file_that_is_no_library_says_so() {
    let (root, _) = tree();
    let path = put(&root.path().join("text.so"));
    let error = Library::open(&path).unwrap_err();
    assert!(matches!(error, LibraryError::Unloadable { .. }), "{error}");
    assert!(error.to_string().contains("text.so"), "{error}");
}

#[test]
fn versions_are_compared_as_numbers() {
    let parse = |text| Version::parse(text).unwrap();
    assert!(parse("1.9.0") < Version::CUDA);
    assert!(parse("1.31.1") < Version::CPU && parse("1.31.1") >= Version::CUDA);
    assert!(parse("1.32.0-rc1") >= Version::CPU && parse("1.100.2") >= Version::CPU);
    assert_eq!(parse("1.32"), Version::new(1, 32, 0));
    for bad in ["", "one", "1", "1.x.0", "1.32.x"] {
        assert_eq!(Version::parse(bad), None, "{bad}");
    }
}

/// Compiles a library with the given body; `None` where no compiler can be run.
fn compile(folder: &Path, name: &str, body: &str) -> Option<PathBuf> {
    let source = folder.join(format!("{name}.rs"));
    let path = folder.join(format!("{name}.so"));
    fs::write(&source, body).unwrap();
    let rustc = option_env!("RUSTC").unwrap_or("rustc");
    let done = Command::new(rustc)
        .args([
            "--edition",
            "2024",
            "--crate-type",
            "cdylib",
            "-C",
            "panic=abort",
            "-o",
        ])
        .args([&path, &source])
        .output()
        .ok()?;
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    Some(path)
}

fn versioned(version: &str) -> String {
    format!(
        r#"
#[repr(C)]
pub struct Base(extern "system" fn(u32) -> *const u8, extern "system" fn() -> *const u8);
unsafe impl Sync for Base {{}}
extern "system" fn api(_: u32) -> *const u8 {{ std::ptr::null() }}
extern "system" fn version() -> *const u8 {{ b"{version}\0".as_ptr() }}
static BASE: Base = Base(api, version);
#[unsafe(no_mangle)]
pub extern "system" fn OrtGetApiBase() -> *const Base {{ &BASE }}
"#
    )
}

#[test]
fn other_libraries_and_old_ones_are_told_apart() {
    let (root, _) = tree();
    let Some(other) = compile(root.path(), "other", "") else {
        eprintln!("skipped: no Rust compiler to make stub libraries with");
        return;
    };
    let error = Library::open(&other).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("does not export `OrtGetApiBase`"),
        "{error}"
    );

    let odd = compile(root.path(), "odd", &versioned("unknown")).unwrap();
    let error = Library::open(&odd).unwrap_err();
    assert!(
        matches!(error, LibraryError::NotOnnxRuntime { .. }),
        "{error}"
    );

    let old = compile(root.path(), "old", &versioned("1.31.1")).unwrap();
    let library = Library::open(&old).unwrap();
    let check =
        |required| Library::check(&library.path, library.version, required, "this provider");
    assert_eq!(check(Version::CUDA), Ok(()));
    let message = check(Version::CPU).unwrap_err().to_string();
    for part in [
        "1.31.1",
        "1.32.0 or later",
        "this provider",
        "old.so",
        "cargo xtask setup",
    ] {
        assert!(message.contains(part), "{message}");
    }
}
