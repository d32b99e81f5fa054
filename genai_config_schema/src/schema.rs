//! The format as a JSON Schema, which also drives the reader.

use std::sync::LazyLock;

use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use serde_json::{Value, json};

use crate::GenaiConfig;

/// The JSON Schema (draft 2020-12) of the file, pretty-printed with a final newline.
///
/// It covers keys, types, ranges and words; rules between keys are in
/// [`ConfigCode`](crate::ConfigCode). Besides the standard keywords it has `x-code`, the code of a
/// violation, `x-retired`, keys of an older format, and the string formats `relative-path`,
/// `folder-path`, `tensor-name` and `name-template`.
#[must_use]
pub fn json_schema() -> String {
    format!("{:#}\n", root())
}

/// The schema as a value.
pub(crate) fn root() -> &'static Value {
    static ROOT: LazyLock<Value> = LazyLock::new(|| {
        SchemaSettings::draft2020_12()
            .with_transform(RecursiveTransform(strict))
            .into_generator()
            .into_root_schema_for::<GenaiConfig>()
            .to_value()
    });
    &ROOT
}

/// Makes a derived schema say exactly what is read: absent keys are absent, not null, and numbers
/// have the bounds of their type.
fn strict(schema: &mut Schema) {
    schema.remove("default");
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(choices)) = schema.get("anyOf") {
        let some = choices
            .iter()
            .find_map(|choice| choice.get("$ref"))
            .cloned();
        if let Some(reference) = some {
            schema.remove("anyOf");
            schema.insert("$ref".to_owned(), reference);
        }
    }
    let (least, most) = match schema.get("format").and_then(Value::as_str) {
        Some("uint32") => (json!(0), json!(u32::MAX)),
        Some("int32") => (json!(i32::MIN), json!(i32::MAX)),
        Some("int64") => (json!(i64::MIN), json!(i64::MAX)),
        _ => return,
    };
    let object = schema.ensure_object();
    object.entry("minimum").or_insert(least);
    object.entry("maximum").or_insert(most);
}
