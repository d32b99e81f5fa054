//! Checks a value against the JSON Schema: keys, types, ranges, words, names and paths.
//!
//! What is wrong is reported and taken out, so that the rest can be read and checked further.

use serde_json::{Map, Value};

use crate::report::Report;
use crate::suggest::did_you_mean;
use crate::{ConfigCode, path, schema, template};

/// Sections of onnxruntime-genai files for models that are not text decoders.
const FOREIGN: &[&str] = &[
    "audio_output",
    "draft",
    "embedding",
    "encoder",
    "joiner",
    "moonshine",
    "pipeline",
    "runtime_profiles",
    "speech",
    "vad",
    "vision",
];

/// Checks `value`, a whole file, or a part of one if `partial` (nothing is missing then). False
/// when nothing of it can be used.
pub(crate) fn check(value: &mut Value, partial: bool, report: &mut Report) -> bool {
    let mut checker = Checker { partial, report };
    checker.value(Site::of(schema::root(), None), "", value)
}

struct Checker<'r> {
    partial: bool,
    report: &'r mut Report,
}

/// A place of the schema, its reference followed.
#[derive(Clone, Copy)]
struct Site<'s> {
    schema: &'s Value,
    /// The code of the place, in place of the general one.
    code: Option<ConfigCode>,
}

impl<'s> Site<'s> {
    fn of(schema: &'s Value, outer: Option<ConfigCode>) -> Self {
        let own = schema.get("x-code").and_then(Value::as_str);
        let code = own.and_then(|word| {
            ConfigCode::ALL
                .iter()
                .copied()
                .find(|code| code.as_str() == word)
        });
        let code = code.or(outer);
        match schema.get("$ref").and_then(Value::as_str) {
            None => Self { schema, code },
            Some(reference) => {
                let target = reference
                    .strip_prefix('#')
                    .and_then(|at| schema::root().pointer(at));
                // A reference that leads nowhere would be a broken schema; `true` accepts all.
                target.map_or(
                    Self {
                        schema: &Value::Bool(true),
                        code,
                    },
                    |target| Self::of(target, code),
                )
            }
        }
    }

    fn word(self, keyword: &str) -> Option<&'s str> {
        self.schema.get(keyword)?.as_str()
    }

    fn object(self, keyword: &str) -> Option<&'s Map<String, Value>> {
        self.schema.get(keyword)?.as_object()
    }

    fn list(self, keyword: &str) -> &'s [Value] {
        self.schema
            .get(keyword)
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }

    fn size(self, keyword: &str) -> Option<u64> {
        self.schema.get(keyword)?.as_u64()
    }

    /// The JSON types that may stand here; none means any.
    fn types(self) -> Vec<&'s str> {
        match self.schema.get("type") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
            _ if self.words().is_empty() => Vec::new(),
            _ => vec!["string"],
        }
    }

    /// The words that may stand here; none means any string.
    fn words(self) -> Vec<&'s str> {
        let one_of = self
            .list("oneOf")
            .iter()
            .filter_map(|word| word.get("const"));
        self.list("enum")
            .iter()
            .chain(one_of)
            .filter_map(Value::as_str)
            .collect()
    }

    /// The place of property `key`, if the schema allows it.
    fn property(self, key: &str) -> Option<Self> {
        let named = self
            .object("properties")
            .and_then(|properties| properties.get(key));
        // Configuration entries of ONNX Runtime have a dot in their names; no key of ours has.
        let dotted = || {
            let patterns = self.object("patternProperties")?;
            key.contains('.')
                .then(|| patterns.values().next())
                .flatten()
        };
        let other = || {
            self.schema
                .get("additionalProperties")
                .filter(|other| other.is_object())
        };
        named
            .or_else(dotted)
            .or_else(other)
            .map(|schema| Site::of(schema, None))
    }
}

impl Checker<'_> {
    /// True when `value` can be used. Inside objects, what cannot be used is removed.
    fn value(&mut self, site: Site<'_>, at: &str, value: &mut Value) -> bool {
        let types = site.types();
        let allows = |kind: &str| types.is_empty() || types.contains(&kind);
        match value {
            Value::Object(object) if allows("object") => self.object(site, at, object),
            Value::Array(list) if allows("array") => self.list(site, at, list),
            Value::String(text) if allows("string") => self.string(site, at, text),
            Value::Bool(_) if allows("boolean") => true,
            Value::Number(_) if allows("integer") => self.integer(site, at, value),
            Value::Number(number) if allows("number") => {
                let number = number.as_f64().unwrap_or(f64::NAN);
                self.float(site, at, number)
            }
            Value::Null if allows("number") => self.fault(
                ConfigCode::NotFinite,
                at,
                "expected a finite number, found null (what JSON makes of NaN)",
            ),
            found @ (Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_)) => {
                let message = format!("expected {}, found {}", types.join(" or "), kind(found));
                self.fault(ConfigCode::WrongType, at, message)
            }
        }
    }

    fn fault(&mut self, code: ConfigCode, at: &str, message: impl Into<String>) -> bool {
        self.report.damage(code, at, message);
        false
    }

    fn object(&mut self, site: Site<'_>, at: &str, object: &mut Map<String, Value>) -> bool {
        let count = u64::try_from(object.len()).unwrap_or(u64::MAX);
        if site
            .size("minProperties")
            .is_some_and(|least| count < least)
            || site.size("maxProperties").is_some_and(|most| count > most)
        {
            let message = format!("expected an object with one key, found {count}");
            return self.fault(ConfigCode::OutOfRange, at, message);
        }
        object.retain(|key, value| {
            let here = path::key(at, key);
            match site.property(key) {
                Some(property) => self.value(property, &here, value),
                None => self.unknown(site, &here, key),
            }
        });
        if !self.partial {
            let required = site.list("required").iter().filter_map(Value::as_str);
            for key in required.filter(|key| !object.contains_key(*key)) {
                self.missing(site, &path::key(at, key), key);
            }
        }
        true
    }

    fn unknown(&mut self, site: Site<'_>, at: &str, key: &str) -> bool {
        if self.report.is_full() {
            return false;
        }
        let retired = site
            .list("x-retired")
            .iter()
            .any(|word| word.as_str() == Some(key));
        if retired {
            let message = "this key moved to model.decoder.inputs and model.decoder.outputs";
            self.report.note(ConfigCode::C5, at, message);
        } else if FOREIGN.contains(&key) {
            let message = "unknown key: only text decoders are covered";
            self.report.note(ConfigCode::UnknownKey, at, message);
        } else {
            let known = site.object("properties").into_iter().flat_map(Map::keys);
            let hint = did_you_mean(key, known.map(String::as_str));
            let message = format!("unknown key{hint}");
            self.report.note(ConfigCode::UnknownKey, at, message);
        }
        false
    }

    fn missing(&mut self, site: Site<'_>, at: &str, key: &str) {
        // Removed just now, hence already reported.
        if !self.report.damaged_near(at) {
            let code = site.property(key).and_then(|property| property.code);
            let code = code.unwrap_or(ConfigCode::MissingKey);
            self.report.damage(code, at, "the key is required");
        }
    }

    fn list(&mut self, site: Site<'_>, at: &str, list: &mut [Value]) -> bool {
        let count = u64::try_from(list.len()).unwrap_or(u64::MAX);
        if site.size("minItems").is_some_and(|least| count < least) {
            let code = site.code.unwrap_or(ConfigCode::OutOfRange);
            return self.fault(code, at, "the list may not be empty");
        }
        if let Some(most) = site.size("maxItems").filter(|&most| count > most) {
            let message = format!("expected at most {most} entries, found {count}");
            return self.fault(ConfigCode::OutOfRange, at, message);
        }
        let Some(items) = site.schema.get("items") else {
            return true;
        };
        let items = Site::of(items, None);
        let mut usable = true;
        for (index, value) in list.iter_mut().enumerate() {
            usable &= self.value(items, &path::index(at, index), value);
        }
        usable
    }

    fn string(&mut self, site: Site<'_>, at: &str, text: &str) -> bool {
        let words = site.words();
        if !words.is_empty() && !words.contains(&text) {
            let code = site.code.unwrap_or(ConfigCode::UnknownWord);
            let hint = did_you_mean(text, words.iter().copied());
            let shown = path::shorten(text);
            let message = format!(
                "expected one of {}, found {shown:?}{hint}",
                words.join(", ")
            );
            return self.fault(code, at, message);
        }
        let (code, fault) = match site.word("format") {
            Some("relative-path") => (ConfigCode::UnsafePath, path::file_fault(text)),
            Some("folder-path") if !text.is_empty() => {
                (ConfigCode::UnsafePath, path::file_fault(text))
            }
            Some("tensor-name") => (ConfigCode::BadName, template::name_fault(text)),
            Some("name-template") => (ConfigCode::C12, template::template_fault(text)),
            Some("uint64") => (ConfigCode::OutOfRange, digits_fault(text)),
            _ => return true,
        };
        let shown = path::shorten(text);
        fault.is_none_or(|fault| {
            let message = format!("{fault}, found {shown:?}");
            self.fault(site.code.unwrap_or(code), at, message)
        })
    }

    /// Rewrites a whole number with a fraction part of zero as an integer.
    fn integer(&mut self, site: Site<'_>, at: &str, value: &mut Value) -> bool {
        let Some(number) = whole(value) else {
            let code = site.code.unwrap_or(ConfigCode::NotInteger);
            return self.fault(code, at, format!("expected a whole number, found {value}"));
        };
        let bound = |keyword| site.schema.get(keyword).and_then(whole);
        let (least, most) = (bound("minimum"), bound("maximum"));
        if least.is_some_and(|least| number < least) || most.is_some_and(|most| number > most) {
            let code = site.code.unwrap_or(ConfigCode::OutOfRange);
            let message = format!("expected {}, found {number}", range(least, most));
            return self.fault(code, at, message);
        }
        if let Ok(number) = i64::try_from(number) {
            *value = Value::from(number);
        }
        true
    }

    fn float(&mut self, site: Site<'_>, at: &str, number: f64) -> bool {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "this is what the reader will do"
        )]
        if !(number as f32).is_finite() {
            let message = format!("expected a number that fits float32, found {number:e}");
            return self.fault(ConfigCode::NotFinite, at, message);
        }
        let bound = |keyword| site.schema.get(keyword).and_then(Value::as_f64);
        let above = bound("exclusiveMinimum");
        let (least, most) = (bound("minimum"), bound("maximum"));
        if above.is_some_and(|above| number <= above)
            || least.is_some_and(|least| number < least)
            || most.is_some_and(|most| number > most)
        {
            let code = site.code.unwrap_or(ConfigCode::OutOfRange);
            let expected = above.map_or_else(
                || range(least, most),
                |above| format!("above {above}, {}", range(None, most)),
            );
            return self.fault(code, at, format!("expected {expected}, found {number}"));
        }
        true
    }
}

/// `value` as a whole number; fractions, and floats too large to be exact, are none.
fn whole(value: &Value) -> Option<i128> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let integer = value
        .as_i64()
        .map(i128::from)
        .or(value.as_u64().map(i128::from));
    integer.or_else(|| {
        let float = value.as_f64()?;
        #[expect(clippy::cast_possible_truncation, reason = "whole and within 2^53")]
        (float.fract() == 0.0 && float.abs() <= EXACT).then_some(float as i128)
    })
}

fn range<T: std::fmt::Display>(least: Option<T>, most: Option<T>) -> String {
    match (least, most) {
        (Some(least), Some(most)) => format!("{least} to {most}"),
        (Some(least), None) => format!("at least {least}"),
        (None, Some(most)) => format!("at most {most}"),
        (None, None) => "a number".to_owned(),
    }
}

fn digits_fault(text: &str) -> Option<&'static str> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (!digits || text.parse::<u64>().is_err())
        .then_some("expected a string of decimal digits below 2^64")
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
