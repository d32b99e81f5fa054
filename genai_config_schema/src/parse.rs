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
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let node = Node {
        path: String::new(),
        depth: 0,
        report,
    };
    let value = node
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
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

/// A value about to be read.
struct Node<'r> {
    path: String,
    depth: usize,
    report: &'r mut Report,
}

impl Node<'_> {
    fn child(&mut self, path: String) -> Node<'_> {
        Node {
            path,
            depth: self.depth + 1,
            report: self.report,
        }
    }

    /// True when this container lies too deep; it is skipped.
    fn too_deep(&mut self) -> bool {
        let deep = self.depth >= MAX_DEPTH;
        if deep && !self.report.has(ConfigCode::TooDeep) {
            let message = format!("at most {MAX_DEPTH} levels are read");
            self.report.damage(ConfigCode::TooDeep, &self.path, message);
        }
        deep
    }

    fn duplicate(&mut self, key: &str) {
        let path = path::key(&self.path, key);
        let in_group = self.path.starts_with("model.decoder.state_groups[");
        let code = match key {
            "state_update" | "key" | "value" | "state" if in_group => ConfigCode::C19,
            _ => ConfigCode::DuplicateKey,
        };
        self.report.note(code, &path, "the key appears twice");
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
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
                self.duplicate(&key);
            } else {
                values.insert(key, value);
            }
        }
        Ok(Value::Object(values))
    }
}
