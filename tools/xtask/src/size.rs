//! The size budget: a source file longer than 800 lines is refused.

use crate::{ChoreError, source};
use std::path::Path;

/// Lines after which a hand-written file is too long, its tests included.
const MOST_LINES: usize = 800;

/// Files that may be longer, with the reason.
const EXCEPTIONS: &[(&str, &str)] = &[(
    "builder/src/onnx/proto.rs",
    "generated from the published onnx-ml.proto",
)];

/// Checks every file of the workspace.
pub(crate) fn check(root: &Path) -> Result<(), ChoreError> {
    ChoreError::unless_empty("size", &violations(&source::read_all(root)?))
}

fn violations(files: &[source::SourceFile]) -> Vec<String> {
    files
        .iter()
        .filter(|file| EXCEPTIONS.iter().all(|(path, _)| *path != file.path))
        .map(|file| (file, file.text.lines().count()))
        .filter(|(_, lines)| *lines > MOST_LINES)
        .map(|(file, lines)| format!("{}: {lines} lines, at most {MOST_LINES}", file.path))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_is_refused_and_an_exception_is_not() {
        let file = |path: &str, lines| source::SourceFile {
            path: path.to_owned(),
            text: "\n".repeat(lines),
        };
        assert!(violations(&[file("a.rs", MOST_LINES)]).is_empty());
        assert_eq!(violations(&[file("a.rs", MOST_LINES + 1)]).len(), 1);
        assert!(violations(&[file("builder/src/onnx/proto.rs", 5000)]).is_empty());
    }
}
