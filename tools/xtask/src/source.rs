//! The hand-written Rust files of the workspace.

use crate::ChoreError;
use std::path::{Path, PathBuf};

/// One source file.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    /// Path from the workspace root, with `/`.
    pub(crate) path: String,
    /// Its text.
    pub(crate) text: String,
}

/// Every `.rs` file below the root, build outputs and hidden folders left out, in path order.
pub(crate) fn read_all(root: &Path) -> Result<Vec<SourceFile>, ChoreError> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).map_err(ChoreError::io(&folder))?;
        for entry in entries {
            let path = entry.map_err(ChoreError::io(&folder))?.path();
            if path.is_dir() {
                if !is_skipped(&path) {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(read(root, path)?);
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn is_skipped(folder: &Path) -> bool {
    let name = folder
        .file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default();
    name.starts_with('.') || name == "target" || name == "demo"
}

fn read(root: &Path, path: PathBuf) -> Result<SourceFile, ChoreError> {
    let text = std::fs::read_to_string(&path).map_err(ChoreError::io(&path))?;
    let relative = path.strip_prefix(root).unwrap_or(&path);
    let parts: Vec<_> = relative
        .iter()
        .map(|p| p.to_string_lossy().into_owned())
        .collect();
    Ok(SourceFile {
        path: parts.join("/"),
        text,
    })
}

/// The text with comments and string contents blanked, so that a search sees code only.
pub(crate) fn code_only(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        out.push_str(&strip_line(line));
        out.push('\n');
    }
    out
}

/// Blanks the contents of one-line string literals and a trailing `//` comment.
fn strip_line(line: &str) -> String {
    let (mut out, mut in_string, mut previous) = (String::new(), false, ' ');
    for c in line.chars() {
        match (in_string, c) {
            (false, '/') if previous == '/' => {
                out.pop();
                return out;
            }
            (_, '"') if previous != '\\' && (in_string || previous != '\'') => {
                in_string = !in_string;
                out.push('"');
            }
            (true, _) => {}
            (false, _) => out.push(c),
        }
        previous = if previous == '\\' && c == '\\' {
            ' '
        } else {
            c
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_blanked() {
        assert_eq!(
            code_only("let a = \"unsafe\"; // unsafe\n"),
            "let a = \"\"; \n"
        );
        assert_eq!(code_only("/// unsafe\nfn f() {}\n"), "\nfn f() {}\n");
        assert_eq!(code_only("unsafe { g() }\n"), "unsafe { g() }\n");
    }
}
