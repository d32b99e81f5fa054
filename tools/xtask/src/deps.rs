//! Who may depend on whom, and where `ort` and `unsafe` may appear.

use crate::{ChoreError, source};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Every package of the workspace and the workspace packages that it may use outside its tests.
const DIRECTION: &[(&str, &[&str])] = &[
    ("genai_config_schema", &[]),
    ("pawl-models", &[]),
    ("pawl-builder", &["genai_config_schema", "pawl-models"]),
    ("pawl", &["genai_config_schema"]),
    (
        "build-model",
        &["genai_config_schema", "pawl", "pawl-builder"],
    ),
    ("pawl-cli", &["genai_config_schema", "pawl"]),
    ("xtask", &[]),
    ("pawl-tests", &["pawl", "pawl-builder"]),
    (
        "pawl-fuzz",
        &["genai_config_schema", "pawl", "pawl-builder"],
    ),
];

/// Packages that may depend on the `ort` crate.
const ORT_PACKAGES: &[&str] = &["pawl"];

/// Folders in which `ort` and `unsafe` may appear.
const BOUNDARY: &[&str] = &[
    "runtime/src/device/",
    "runtime/src/exec/",
    "runtime/src/kernels/",
    "runtime/capi/",
];

/// Folders of tests and benchmarks, which may use `ort` to compare with its own operators.
const ORT_IN_TESTS: &[&str] = &["tests/", "runtime/tests/", "runtime/benches/"];

/// Checks the workspace.
pub(crate) fn check(root: &Path) -> Result<(), ChoreError> {
    let mut violations = direction_violations(&metadata(root)?);
    violations.extend(boundary_violations(&source::read_all(root)?));
    ChoreError::unless_empty("deps", &violations)
}

/// What cargo knows of the workspace.
pub(crate) fn metadata(root: &Path) -> Result<Value, ChoreError> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(root)
        .output()
        .map_err(|e| ChoreError::Command(format!("cargo metadata: {e}")))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(ChoreError::Command(format!("cargo metadata: {message}")));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|e| ChoreError::Command(format!("cargo metadata: {e}")))
}

/// Packages whose tests may use any other package.
const FREE_TESTS: &[&str] = &["build-model", "pawl-cli"];

/// Dependencies that the table does not allow, those of tests included.
fn direction_violations(metadata: &Value) -> Vec<String> {
    let packages = metadata.get("packages").and_then(Value::as_array);
    packages
        .into_iter()
        .flatten()
        .flat_map(package_violations)
        .collect()
}

fn package_violations(package: &Value) -> Vec<String> {
    let name = text(package, "name");
    let Some((_, allowed)) = DIRECTION.iter().find(|(known, _)| *known == name) else {
        return vec![format!("{name}: not in the table of packages")];
    };
    let dependencies = package.get("dependencies").and_then(Value::as_array);
    dependencies
        .into_iter()
        .flatten()
        .filter(|d| text(d, "kind") != "dev" || !FREE_TESTS.contains(&name))
        .map(|d| text(d, "name"))
        .filter(|d| {
            let ours = DIRECTION.iter().any(|(known, _)| known == d);
            (ours && !allowed.contains(d)) || (*d == "ort" && !ORT_PACKAGES.contains(&name))
        })
        .map(|d| format!("{name}: may not depend on {d}"))
        .collect()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Uses of `ort` or `unsafe` outside the boundary.
fn boundary_violations(files: &[source::SourceFile]) -> Vec<String> {
    let starts = |file: &source::SourceFile, folders: &[&str]| {
        folders.iter().any(|folder| file.path.starts_with(folder))
    };
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| !starts(file, BOUNDARY)) {
        let code = source::code_only(&file.text);
        for (number, line) in code.lines().enumerate() {
            let at = || format!("{}:{}", file.path, number + 1);
            if has_word(line, "unsafe") {
                violations.push(format!("{}: unsafe outside the boundary", at()));
            }
            if uses_ort(line) && !starts(file, ORT_IN_TESTS) {
                violations.push(format!("{}: ort outside the boundary", at()));
            }
        }
    }
    violations
}

fn uses_ort(line: &str) -> bool {
    line.match_indices("ort::")
        .any(|(at, _)| !is_word_end(line, at))
        || line.contains("use ort;")
}

fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let after = line
            .get(at + word.len()..)
            .and_then(|rest| rest.chars().next());
        !is_word_end(line, at) && !after.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

/// Whether the character before `at` continues a word.
fn is_word_end(line: &str, at: usize) -> bool {
    let before = line.get(..at).and_then(|head| head.chars().next_back());
    before.is_some_and(|c| c.is_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn file(path: &str, text: &str) -> source::SourceFile {
        source::SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn the_workspace_holds() {
        check(&crate::workspace_root()).unwrap();
    }

    #[test]
    fn a_wrong_direction_is_found() {
        let package = |name: &str, dependency: &str| {
            direction_violations(
                &json!({"packages": [{"name": name, "dependencies": [{"name": dependency}]}]}),
            )
        };
        assert_eq!(
            package("pawl", "pawl-builder"),
            ["pawl: may not depend on pawl-builder"]
        );
        assert_eq!(
            package("pawl-builder", "pawl"),
            ["pawl-builder: may not depend on pawl"]
        );
        assert_eq!(package("pawl-models", "genai_config_schema").len(), 1);
        assert_eq!(
            package("pawl-cli", "ort"),
            ["pawl-cli: may not depend on ort"]
        );
        assert_eq!(
            package("newcomer", "serde"),
            ["newcomer: not in the table of packages"]
        );
        assert!(package("pawl", "ort").is_empty());
    }

    #[test]
    fn unsafe_and_ort_outside_the_boundary_are_found() {
        let found = |path, text| boundary_violations(&[file(path, text)]);
        let unsafe_line = "let x = unsafe { *p };";
        assert_eq!(found("runtime/src/engine/step.rs", unsafe_line).len(), 1);
        assert_eq!(found("builder/src/lib.rs", "unsafe fn f() {}").len(), 1);
        assert_eq!(found("tests/cases/a.rs", unsafe_line).len(), 1);
        assert!(found("runtime/src/kernels/a.rs", unsafe_line).is_empty());
        assert!(
            found(
                "runtime/src/engine/step.rs",
                "// unsafe\n#![deny(unsafe_code)]"
            )
            .is_empty()
        );
        assert_eq!(
            found("runtime/src/engine/step.rs", "use ort::session::Session;").len(),
            1
        );
        assert!(found("tests/cases/a.rs", "use ort::session::Session;").is_empty());
        assert!(found("runtime/src/exec/a.rs", "use ort::session::Session;").is_empty());
        assert!(found("runtime/src/text/a.rs", "use effort::work;").is_empty());
    }
}
