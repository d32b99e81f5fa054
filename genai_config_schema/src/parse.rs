//! Text to a JSON value, noticing what `serde_json` lets pass: duplicate keys and deep nesting.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::report::Report;
use crate::{ConfigCode, path};

/// Longest text, bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// Most objects and lists inside each other.
pub const MAX_DEPTH: usize = 24;

/// Parses `text`; faults go to `report`. `None` when there is no value to go on with.
pub(crate) fn parse(text: &str, report: &mut Report) -> Option<Value> {
    if text.len() > MAX_BYTES {
        let message = format!("{} bytes, at most {MAX_BYTES} are read", text.len());
        report.damage(ConfigCode::TooLarge, "", message);
        return None;
    }
    let value = read(text, report);
    match value {
        _ if report.has(ConfigCode::TooDeep) => None,
        Ok(value) => Some(value),
        Err(error) => {
            let message = error.to_string();
            if message.starts_with("number out of range") {
                report.damage(ConfigCode::NotFinite, "", message);
            } else {
                report.damage(ConfigCode::NotJson, "", message);
            }
            None
        }
    }
}

/// Parses the text of a settings file that is not ours. Readers differ in which of two equal keys they take, so a key
/// that comes twice in one object is an error.
///
/// # Errors
///
/// Texts that are not JSON, and keys that come twice; the message says where.
///
/// ```
/// let error = genai_config_schema::parse_strict(r#"{"eos": 1, "eos": 2}"#).unwrap_err();
/// assert!(error.to_string().contains("\"eos\" appears twice"));
/// ```
pub fn parse_strict(text: &str) -> Result<Value, serde_json::Error> {
    read(text, &mut Strict)
}

fn read(text: &str, watch: &mut impl Watch) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let node = Node {
        path: String::new(),
        depth: 0,
        watch,
    };
    let value = node.deserialize(&mut deserializer)?;
    deserializer.end().map(|()| value)
}

/// What is made of faults that `serde_json` lets pass.
trait Watch {
    /// Whether a container so deep at `path` is skipped.
    fn too_deep(&mut self, path: &str, depth: usize) -> bool;

    /// A key came twice in the object at `path`: an error ends the reading.
    fn duplicate(&mut self, path: &str, key: &str) -> Result<(), String>;
}

/// All faults are gathered.
impl Watch for Report {
    fn too_deep(&mut self, path: &str, depth: usize) -> bool {
        let deep = depth >= MAX_DEPTH;
        if deep && !self.has(ConfigCode::TooDeep) {
            let message = format!("at most {MAX_DEPTH} levels are read");
            self.damage(ConfigCode::TooDeep, path, message);
        }
        deep
    }

    fn duplicate(&mut self, path: &str, key: &str) -> Result<(), String> {
        let in_group = path.starts_with("model.decoder.state_groups[");
        let code = match key {
            "state_update" | "key" | "value" | "state" if in_group => ConfigCode::C19,
            _ => ConfigCode::DuplicateKey,
        };
        self.note(code, &path::key(path, key), "the key appears twice");
        Ok(())
    }
}

/// The first fault is the last. How deep a text may nest is left to `serde_json`.
struct Strict;

impl Watch for Strict {
    fn too_deep(&mut self, _: &str, _: usize) -> bool {
        false
    }

    fn duplicate(&mut self, _: &str, key: &str) -> Result<(), String> {
        Err(format!("the key {key:?} appears twice"))
    }
}

/// A value about to be read.
struct Node<'w, W> {
    path: String,
    depth: usize,
    watch: &'w mut W,
}

impl<W: Watch> Node<'_, W> {
    fn child(&mut self, path: String) -> Node<'_, W> {
        Node {
            path,
            depth: self.depth + 1,
            watch: self.watch,
        }
    }

    /// Whether this container is skipped.
    fn too_deep(&mut self) -> bool {
        self.watch.too_deep(&self.path, self.depth)
    }
}

impl<'de, W: Watch> DeserializeSeed<'de> for Node<'_, W> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, W: Watch> Visitor<'de> for Node<'_, W> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        if self.too_deep() {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Value::Array(values));
        }
        loop {
            let path = path::index(&self.path, values.len());
            match list.next_element_seed(self.child(path))? {
                Some(value) => values.push(value),
                None => return Ok(Value::Array(values)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut object: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        if self.too_deep() {
            while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Value::Object(values));
        }
        while let Some(key) = object.next_key::<String>()? {
            let path = path::key(&self.path, &key);
            let value = object.next_value_seed(self.child(path))?;
            if values.contains_key(&key) {
                let told = self.watch.duplicate(&self.path, &key);
                told.map_err(A::Error::custom)?;
            } else {
                values.insert(key, value);
            }
        }
        Ok(Value::Object(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_usual_parser() {
        let text =
            r#"{"a": [1, -2, 3.5, null, true, "é"], "b": {"a": {}}, "c": 18446744073709551615}"#;
        let usual: Value = serde_json::from_str(text).unwrap();
        assert_eq!(parse_strict(text).unwrap(), usual);
    }

    #[test]
    fn a_key_that_comes_twice_is_named() {
        for text in [r#"{"k": 1, "k": 1}"#, r#"[{"x": {"k": 1, "k": 2}}]"#] {
            let error = parse_strict(text).unwrap_err().to_string();
            assert!(error.contains("\"k\" appears twice"), "{error}");
        }
        for text in ["{} 1", "{", "NaN", "1e999", r#""\ud800""#, &"[".repeat(200)] {
            assert!(parse_strict(text).is_err(), "{text}");
        }
    }
}
