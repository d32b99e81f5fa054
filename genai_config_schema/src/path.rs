//! JSON paths in messages, and file paths in values.

/// Longest file path, bytes.
const MAX_PATH: usize = 1024;

/// Most characters of a key that a JSON path repeats.
const MAX_KEY: usize = 64;

/// The path of `key` below `parent`.
pub(crate) fn key(parent: &str, key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let shown = shorten(key);
    if !shown.is_empty() && shown.chars().all(plain) {
        let dot = if parent.is_empty() { "" } else { "." };
        format!("{parent}{dot}{shown}")
    } else {
        format!("{parent}[{shown:?}]")
    }
}

/// The path of element `index` of `parent`.
pub(crate) fn index(parent: &str, index: usize) -> String {
    format!("{parent}[{index}]")
}

/// True when one path is the other, or lies inside it.
pub(crate) fn related(a: &str, b: &str) -> bool {
    let inside = |outer: &str, inner: &str| {
        inner
            .strip_prefix(outer)
            .is_some_and(|rest| outer.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']))
    };
    inside(a, b) || inside(b, a)
}

/// As much of foreign text as a message repeats.
pub(crate) fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_KEY) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Says why `text` is not a file path below the model folder; `None` when it is one: plain
/// components, separated by `/`.
///
/// The rule is the same on every system, so that a folder that is safe on one is safe on all:
/// backslashes and colons (drives, streams) are refused everywhere.
pub(crate) fn file_fault(text: &str) -> Option<&'static str> {
    if text.is_empty() {
        Some("a path may not be empty")
    } else if text.len() > MAX_PATH {
        Some("a path has at most 1024 bytes")
    } else if text.starts_with('/') {
        Some("a path must be relative to the model folder")
    } else if text.contains(['\\', ':']) || text.chars().any(char::is_control) {
        Some("a path may not contain backslashes, colons or control characters")
    } else if text.split('/').any(|part| part == "..") {
        Some("a path may not leave the model folder")
    } else if text.split('/').any(|part| part.is_empty() || part == ".") {
        Some("a path may not have empty or `.` components")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Component, Path};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_with_other_characters_are_quoted() {
        assert_eq!(key("", "model"), "model");
        assert_eq!(key("a[1]", "b-c"), "a[1].b-c");
        assert_eq!(key("a", "x.y"), r#"a["x.y"]"#);
        assert_eq!(key("a", ""), r#"a[""]"#);
    }

    #[test]
    fn places_are_related_by_whole_keys() {
        assert!(related("a.b", "a.b[0].c"));
        assert!(related("", "a"));
        assert!(!related("a.b", "a.bc"));
        assert!(!related("a[1]", "a[10]"));
    }

    proptest! {
        #[test]
        fn accepted_files_stay_inside_the_folder(
            text in r"(\.|\.\.|[a-c]|/|\\|:){0,6}|\PC{0,8}",
        ) {
            if file_fault(&text).is_none() {
                let mut parts = Path::new(&text).components();
                prop_assert!(parts.all(|part| matches!(part, Component::Normal(_))));
            }
        }
    }
}
