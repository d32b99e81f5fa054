//! The published JSON Schema.
#![allow(missing_docs, reason = "a test program has no public interface")]

use genai_config_schema::{ConfigCode, json_schema};
use serde_json::{Map, Value};

fn schema() -> Value {
    serde_json::from_str(&json_schema()).expect("JSON")
}

/// Every property of the schema: object, key, schema.
fn properties(schema: &Value) -> Vec<(&str, &str, &Value)> {
    let objects = schema["$defs"].as_object().into_iter().flat_map(Map::iter);
    let root = Some(("root", schema));
    root.into_iter()
        .chain(objects.map(|(name, object)| (name.as_str(), object)))
        .flat_map(|(name, object)| {
            let keys = object["properties"]
                .as_object()
                .into_iter()
                .flat_map(Map::iter);
            keys.map(move |(key, value)| (name, key.as_str(), value))
        })
        .collect()
}

#[test]
fn committed_schema_is_current() {
    let advice = "run `cargo run -p genai_config_schema --example write-schema`";
    assert!(
        include_str!("../schema.json") == json_schema(),
        "schema.json is stale: {advice}"
    );
}

#[test]
fn every_file_key_is_kept_inside_the_folder() {
    let schema = schema();
    let file = |key: &str| {
        [
            "file",
            "filename",
            "dir",
            "path",
            "library",
            "profiling",
            "folder",
        ]
        .iter()
        .any(|end| key.ends_with(end))
    };
    let mut seen = 0;
    for (object, key, value) in properties(&schema) {
        if file(key) {
            seen += 1;
            let format = value["format"].as_str().unwrap_or_default();
            assert!(
                matches!(format, "relative-path" | "folder-path"),
                "{object}.{key}: {format}"
            );
        }
    }
    assert!(seen >= 7, "{seen}");
}

#[test]
fn every_name_is_checked() {
    let schema = schema();
    for (object, key, value) in properties(&schema) {
        if object.ends_with("Inputs") || object.ends_with("Outputs") || object == "Binding" {
            let template = key.ends_with("_names") || object == "Binding";
            let wanted = if template {
                "name-template"
            } else {
                "tensor-name"
            };
            assert_eq!(value["format"], wanted, "{object}.{key}");
        }
    }
}

#[test]
fn codes_formats_and_required_keys_of_the_schema_exist() {
    const FORMATS: &[&str] = &[
        "relative-path",
        "folder-path",
        "tensor-name",
        "name-template",
        "uint32",
        "int32",
        "uint64",
        "int64",
        "float",
    ];
    let schema = schema();
    for (object, key, value) in properties(&schema) {
        if let Some(code) = value["x-code"].as_str() {
            assert!(
                ConfigCode::ALL.iter().any(|known| known.as_str() == code),
                "{code}"
            );
        }
        if let Some(format) = value["format"].as_str() {
            assert!(FORMATS.contains(&format), "{object}.{key}: {format}");
        }
        assert!(
            !value.to_string().contains("null"),
            "{object}.{key} may be null"
        );
    }
    for (name, object) in schema["$defs"].as_object().expect("objects") {
        for key in object["required"].as_array().into_iter().flatten() {
            let key = key.as_str().expect("a key");
            assert!(
                object["properties"].get(key).is_some(),
                "{name} requires {key}"
            );
        }
    }
}
