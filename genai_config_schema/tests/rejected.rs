//! Every file of `rejected/` is refused with exactly the errors it names, and every code has one.
//!
//! A case is either `text`, or `base` (a fixture) with JSON pointers to `remove` and to `set`.
#![allow(missing_docs, reason = "a test program has no public interface")]
#![allow(
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a wrong index or an unexpected value fails the test"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use genai_config_schema::{
    ConfigCode, ConfigErrors, GenaiConfig, MAX_BYTES, MAX_DEPTH, MAX_ERRORS,
};
use serde_json::Value;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name)
}

fn json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).expect("a test file");
    serde_json::from_str(&text).expect("JSON")
}

/// The parent of what `pointer` names, and its last token.
fn parent<'v, 'p>(value: &'v mut Value, pointer: &'p str) -> (&'v mut Value, &'p str) {
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    let parent = value
        .pointer_mut(parent)
        .unwrap_or_else(|| panic!("no {pointer}"));
    (parent, key)
}

fn remove(value: &mut Value, pointer: &str) {
    let (parent, key) = parent(value, pointer);
    match parent {
        Value::Array(list) => {
            list.remove(key.parse().expect("an index"));
        }
        other => {
            let object = other.as_object_mut().expect("an object");
            object.remove(key).unwrap_or_else(|| panic!("no {pointer}"));
        }
    }
}

fn set(value: &mut Value, pointer: &str, new: &Value) {
    let (parent, key) = parent(value, pointer);
    match parent {
        Value::Array(list) if key.parse() == Ok(list.len()) => list.push(new.clone()),
        Value::Array(list) => list[key.parse::<usize>().expect("an index")] = new.clone(),
        other => other[key] = new.clone(),
    }
}

fn text_of(case: &Value) -> String {
    if let Some(text) = case["text"].as_str() {
        return text.to_owned();
    }
    let base = case["base"].as_str().expect("a fixture's name");
    let mut value = json(&folder("fixtures").join(format!("{base}.json")));
    for (pointer, new) in case["set"].as_object().into_iter().flatten() {
        set(&mut value, pointer, new);
    }
    for pointer in case["remove"].as_array().into_iter().flatten() {
        remove(&mut value, pointer.as_str().expect("a pointer"));
    }
    value.to_string()
}

fn found(errors: &ConfigErrors) -> Vec<(String, String)> {
    let pair =
        |error: &genai_config_schema::ConfigError| (error.code.to_string(), error.path.clone());
    let mut found: Vec<_> = errors.errors.iter().map(pair).collect();
    found.sort();
    found
}

fn expected(case: &Value) -> Vec<(String, String)> {
    let word = |value: &Value| value.as_str().expect("a word").to_owned();
    let list = case["expect"].as_array().expect("a list");
    let mut expected: Vec<_> = list
        .iter()
        .map(|error| (word(&error["code"]), word(&error["path"])))
        .collect();
    expected.sort();
    expected
}

#[test]
fn every_case_is_refused_with_its_errors_and_every_code_has_a_case() {
    // Checked below, where the text is made or a file is needed.
    let mut covered: BTreeSet<String> = ["too_large", "too_deep", "unreadable"]
        .map(str::to_owned)
        .into();
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(folder("rejected")).expect("a folder") {
        let path = entry.expect("an entry").path();
        let case = json(&path);
        let expected = expected(&case);
        let found = GenaiConfig::from_json(&text_of(&case))
            .map_or_else(|errors| found(&errors), |_| Vec::new());
        if found != expected {
            let name = path.file_name().expect("a name").display();
            wrong.push(format!(
                "{name}:\n  expected {expected:?}\n  found    {found:?}"
            ));
        }
        covered.extend(expected.into_iter().map(|(code, _)| code));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let all: BTreeSet<String> = ConfigCode::ALL.iter().map(ToString::to_string).collect();
    assert_eq!(covered, all);
}

fn only_code(text: &str) -> ConfigCode {
    let errors = GenaiConfig::from_json(text).expect_err("refused");
    assert_eq!(errors.errors.len(), 1, "{errors}");
    errors.errors[0].code
}

#[test]
fn text_beyond_the_bounds_is_not_looked_into() {
    let long = format!("{{\"x\": \"{}\"}}", "x".repeat(MAX_BYTES));
    assert_eq!(only_code(&long), ConfigCode::TooLarge);
    for levels in [MAX_DEPTH, 100_000] {
        let deep = format!("{{\"search\": {}", "[".repeat(levels));
        assert!(matches!(
            only_code(&deep),
            ConfigCode::NotJson | ConfigCode::TooDeep
        ));
        let deep = format!("{deep}{}}}", "]".repeat(levels));
        assert_eq!(only_code(&deep), ConfigCode::TooDeep);
    }
}

#[test]
fn files_are_named_in_errors() {
    let folder = tempfile::tempdir().expect("a folder");
    let absent = folder.path().join("genai_config.json");
    let errors = GenaiConfig::read(&absent).expect_err("absent");
    assert_eq!(errors.errors[0].code, ConfigCode::Unreadable);
    assert_eq!(errors.file.as_deref(), Some(absent.as_path()));
    let errors = GenaiConfig::read(folder.path()).expect_err("a folder");
    assert_eq!(errors.errors[0].code, ConfigCode::Unreadable);
    std::fs::write(&absent, [0xFF]).expect("written");
    let errors = GenaiConfig::read(&absent).expect_err("not text");
    assert_eq!(errors.errors[0].code, ConfigCode::Unreadable);
    std::fs::write(&absent, vec![0xFF; MAX_BYTES + 1]).expect("written");
    let errors = GenaiConfig::read(&absent).expect_err("too large");
    assert_eq!(errors.errors[0].code, ConfigCode::TooLarge);
    std::fs::write(&absent, "{}").expect("written");
    let errors = GenaiConfig::read(&absent).expect_err("empty");
    assert!(
        errors
            .to_string()
            .starts_with(&absent.display().to_string()),
        "{errors}"
    );
}

#[test]
fn misspelt_keys_and_words_get_a_suggestion() {
    let errors = GenaiConfig::from_json(
        r#"{"modle": {}, "model": {"decoder": {"state_groups":
        [{"kind": "paged_vk", "layer_ids": [0]}]}}}"#,
    )
    .expect_err("misspelt");
    let text = errors.to_string();
    assert!(text.contains("did you mean `model`?"), "{text}");
    assert!(text.contains("did you mean `paged_kv`?"), "{text}");
}

#[test]
fn large_files_full_of_errors_are_answered() {
    let list = |entry: &str| vec![entry; MAX_BYTES / 2 / entry.len()].join("");
    let keys: String = (0..60_000).map(|key| format!("\"k{key}\": 0,")).collect();
    let decoder = |groups: &str| {
        format!("{{\"model\": {{\"decoder\": {{\"num_hidden_layers\": 9, {groups}}}}}}}")
    };
    for text in [
        format!("{{{keys} \"model\": 0}}"),
        format!("{{{} \"model\": 0}}", list("\"model\": 0, ")),
        decoder(&format!("\"layer_types\": [{}0]", list("0, "))),
        decoder(&format!(
            "\"state_groups\": [{}0]",
            list("{\"kind\": \"paged_vk\"}, ")
        )),
        decoder(&format!(
            "\"state_groups\": [{{\"kind\": \"paged_kv\", \"layer_ids\": [{}0]}}]",
            list("7, ")
        )),
    ] {
        let errors = GenaiConfig::from_json(&text).expect_err("full of errors");
        assert!((1..=MAX_ERRORS).contains(&errors.errors.len()));
    }
}
