//! Typed, checked reading of settings files.
//!
//! A key that is absent and a key that is `null` mean the same everywhere in these files.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::error::DescribeError;

pub(crate) const CONFIG: &str = "config.json";
pub(crate) const GENERATION: &str = "generation_config.json";

type Object = Map<String, Value>;

/// One object of a settings file, with the path that leads to it.
#[derive(Clone, Debug)]
pub(crate) struct Section<'a> {
    file: &'static str,
    prefix: String,
    map: &'a Object,
}

impl<'a> Section<'a> {
    /// The whole of a file.
    pub(crate) fn root(file: &'static str, value: &'a Value) -> Result<Self, DescribeError> {
        let map = value.as_object().ok_or_else(|| DescribeError::Value {
            file,
            key: "(top level)".to_owned(),
            expected: "an object".to_owned(),
            found: show(Some(value)),
        })?;
        Ok(Self {
            file,
            prefix: String::new(),
            map,
        })
    }

    /// The object under `key`.
    pub(crate) fn section(&self, key: &str) -> Result<Option<Self>, DescribeError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(Self {
                file: self.file,
                prefix: format!("{}.", self.path(key)),
                map,
            })),
            Some(_) => Err(self.error(key, "an object")),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn path(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// The value of `key` is not what it may be.
    pub(crate) fn error(&self, key: &str, expected: impl Into<String>) -> DescribeError {
        self.error_at(key, expected, show(self.map.get(key)))
    }

    pub(crate) fn error_at(
        &self,
        key: &str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> DescribeError {
        DescribeError::Value {
            file: self.file,
            key: self.path(key),
            expected: expected.into(),
            found: found.into(),
        }
    }

    pub(crate) fn integer(
        &self,
        key: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, DescribeError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match value.as_u64() {
            Some(n) if range.contains(&n) => Ok(Some(n)),
            _ => Err(self.error(key, integer_range(&range))),
        }
    }

    pub(crate) fn required_integer(
        &self,
        key: &str,
        range: RangeInclusive<u64>,
    ) -> Result<u64, DescribeError> {
        self.integer(key, range.clone())?
            .ok_or_else(|| self.error(key, integer_range(&range)))
    }

    pub(crate) fn positive(&self, key: &str) -> Result<Option<f64>, DescribeError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match value.as_f64() {
            Some(x) if x.is_finite() && x > 0.0 => Ok(Some(x)),
            _ => Err(self.error(key, "a positive number")),
        }
    }

    pub(crate) fn required_positive(&self, key: &str) -> Result<f64, DescribeError> {
        self.positive(key)?
            .ok_or_else(|| self.error(key, "a positive number"))
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, DescribeError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => Err(self.error(key, "true or false")),
        }
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<&'a str>, DescribeError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.error(key, "a string")),
        }
    }

    pub(crate) fn list(&self, key: &str) -> Result<Option<&'a [Value]>, DescribeError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(_) => Err(self.error(key, "a list")),
        }
    }
}

fn integer_range(range: &RangeInclusive<u64>) -> String {
    format!("an integer from {} to {}", range.start(), range.end())
}

/// A value as it goes into a message: short, on one line.
pub(crate) fn show(value: Option<&Value>) -> String {
    const LONGEST: usize = 80;
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return "nothing".to_owned();
    };
    let text = value.to_string();
    if text.chars().count() <= LONGEST {
        return text;
    }
    let start: String = text.chars().take(LONGEST).collect();
    format!("{start}...")
}

/// `config.json`: the section that describes the language model, and the one around it where there is one.
#[derive(Clone, Debug)]
pub(crate) struct Config<'a> {
    /// Settings of the language model.
    pub(crate) text: Section<'a>,
    /// The file's top level, where the settings of the language model are nested in it.
    pub(crate) outer: Option<Section<'a>>,
}

impl<'a> Config<'a> {
    /// Both sections, the language model's first.
    pub(crate) fn sections(&self) -> impl Iterator<Item = &Section<'a>> {
        std::iter::once(&self.text).chain(&self.outer)
    }
}
