//! Every public item of the crate to embed shows how it is used.

use crate::{ChoreError, source};
use std::collections::BTreeSet;
use std::path::Path;

/// Folder of the crate.
const CRATE: &str = "runtime/src/";

/// Its root, which names what is public.
const ROOT: &str = "runtime/src/lib.rs";

/// Checks the crate.
pub(crate) fn check(root: &Path) -> Result<(), ChoreError> {
    ChoreError::unless_empty("examples", &violations(&source::read_all(root)?))
}

/// Types, traits and functions that the root names in `pub use`, and methods of those types, without an example in
/// their documentation. Methods of traits are shown by the trait.
fn violations(files: &[source::SourceFile]) -> Vec<String> {
    let ours = || files.iter().filter(|file| file.path.starts_with(CRATE));
    let root = ours().find(|file| file.path == ROOT);
    let public = root.map_or(BTreeSet::new(), |file| exported(&file.text));
    ours().flat_map(|file| bare_items(file, &public)).collect()
}

/// Names in `pub use a::b;` and `pub use a::{b, c};`.
fn exported(root: &str) -> BTreeSet<&str> {
    let uses = root.split("\npub use ").skip(1);
    let names = uses.filter_map(|rest| rest.split(';').next()?.rsplit("::").next());
    names
        .flat_map(|names| names.split(['{', '}', ',']))
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .collect()
}

/// Public items of one file without an example.
fn bare_items(file: &source::SourceFile, public: &BTreeSet<&str>) -> Vec<String> {
    let mut bare = Vec::new();
    let (mut owner, mut documented) = (None, false);
    for (number, line) in file.text.lines().enumerate() {
        if let Some(name) = implemented(line) {
            owner = Some(name).filter(|name| public.contains(name));
        } else if line == "}" {
            owner = None;
        }
        let item = match (defined(line, "pub "), defined(line, "    pub "), owner) {
            (Some(name), _, _) if public.contains(name) => Some(name.to_owned()),
            (None, Some(name), Some(owner)) => Some(format!("{owner}::{name}")),
            _ => None,
        };
        if let Some(item) = item.filter(|_| !documented) {
            let at = format!("{}:{}", file.path, number + 1);
            bare.push(format!("{at}: {item} has no example"));
        }
        documented = match line.trim_start() {
            text if text.starts_with("///") => documented || text.contains("```"),
            // Attributes lie between the documentation and the item, on one line or on several.
            text => {
                documented && (text.starts_with("#[") || text.starts_with(')') || is_inner(text))
            }
        };
    }
    bare
}

/// A line inside an attribute of several lines.
fn is_inner(text: &str) -> bool {
    text.starts_with('"') || text.contains(" = ") && text.ends_with(',')
}

/// The type of an inherent implementation that begins here.
fn implemented(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl ")?.strip_suffix(" {")?;
    (!rest.contains(' ')).then_some(rest)
}

/// The name of the item that is defined after `prefix`.
fn defined<'a>(line: &'a str, prefix: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(prefix)?;
    let rest = rest.strip_prefix("const ").unwrap_or(rest);
    let rest = rest.strip_prefix("async ").unwrap_or(rest);
    let kinds = ["fn ", "struct ", "enum ", "trait "];
    let name = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
    name.split(|c: char| !c.is_alphanumeric() && c != '_')
        .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> source::SourceFile {
        source::SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    /// What is found in a crate of a root and one module.
    fn found(module: &str) -> Vec<String> {
        let root = "//! Docs.\n\nmod a;\n\npub use a::{A, b};\npub use c::T;\n";
        violations(&[file(ROOT, root), file("runtime/src/a.rs", module)])
    }

    #[test]
    fn the_workspace_holds() {
        check(&crate::workspace_root()).unwrap();
    }

    #[test]
    fn public_items_without_an_example_are_found() {
        let module = "/// Text.\npub struct A;\n\nimpl A {\n    /// Text.\n    pub const fn m() {}\n}\n\n\
                      /// Text.\npub async fn b() {}\n\npub trait T {}\n";
        let named = ["2: A", "6: A::m", "10: b", "12: T"];
        let named = named.map(|name| format!("runtime/src/a.rs:{name} has no example"));
        assert_eq!(found(module), named);
    }

    #[test]
    fn examples_and_private_items_are_fine() {
        let shown = "/// Text.\n///\n/// ```\n/// a();\n/// ```\n";
        let attributes = "#[derive(Debug)]\n#[error(\n    \"x\"\n)]\n";
        let methods = shown.replace("///", "    ///") + "    #[must_use]\n    pub fn m() {}\n";
        for module in [
            format!(
                "{shown}{attributes}pub enum A {{}}\n\nimpl A {{\n{methods}    fn private() {{}}\n}}\n"
            ),
            "pub(crate) struct A;\npub struct Other;\n\nimpl Other {\n    pub fn m() {}\n}\n"
                .to_owned(),
            "impl Clone for A {\n    fn clone() {}\n}\n".to_owned(),
        ] {
            assert_eq!(found(&module), Vec::<String>::new(), "{module}");
        }
        assert_eq!(
            found(&format!("{shown}fn private() {{}}\npub fn b() {{}}\n")).len(),
            1
        );
    }
}
