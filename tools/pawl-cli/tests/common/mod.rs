//! What tests of the binary share.

#![allow(dead_code, reason = "not every file of tests uses everything")]

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;

/// The shipped checkpoint, exported once for all tests of this file.
pub(crate) fn model() -> &'static Path {
    static MODEL: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = MODEL.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let input = workspace().join("models/checkpoints/tiny-python");
        let options = pawl_builder::BuildOptions::default();
        let request = pawl_builder::BuildRequest::new(input, folder.path().join("model"), options);
        pawl_builder::build(&request, &mut ())
            .unwrap()
            .publish()
            .unwrap();
        folder
    });
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| folder.path().join("model"))
}

/// The workspace.
pub(crate) fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
}

/// A folder with the files of the model, to be changed: files that are links to the model's are replaced, not written.
pub(crate) fn copy_of_model() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(model()).unwrap() {
        let from = entry.unwrap().path();
        let to = folder.path().join(from.file_name().unwrap());
        std::fs::hard_link(&from, &to)
            .or_else(|_| std::fs::copy(&from, &to).map(|_| ()))
            .unwrap();
    }
    folder
}

/// Output as text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs must be refused with exit code 2 and a message that holds every one of `parts`.
pub(crate) fn assert_refused(output: &Output, parts: &[&str]) {
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    assert!(message.starts_with("error: "), "{message}");
    assert!(!message.contains("panicked"), "{message}");
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}
