//! JSON as Python's `json.dumps` writes it, which is what chat templates were tested with.

use serde_json::{Map, Value};

/// The options of `json.dumps` that templates use.
#[derive(Clone, Debug)]
pub(super) struct Dumps {
    pub(super) ensure_ascii: bool,
    /// Text of one level of indentation; `None` writes one line.
    pub(super) indent: Option<String>,
    pub(super) item_separator: String,
    pub(super) key_separator: String,
    pub(super) sort_keys: bool,
}

/// A text that would be longer than it may be.
#[derive(Debug, thiserror::Error)]
#[error("the JSON text would have more than {} bytes", .0)]
pub(super) struct TooLong(usize);

/// A text with a longest length.
struct Bounded {
    text: String,
    most: usize,
}

impl Bounded {
    fn push_str(&mut self, text: &str) -> Result<(), TooLong> {
        if self.most.saturating_sub(self.text.len()) < text.len() {
            return Err(TooLong(self.most));
        }
        self.text.push_str(text);
        Ok(())
    }

    fn push(&mut self, character: char) -> Result<(), TooLong> {
        self.push_str(character.encode_utf8(&mut [0; 4]))
    }
}

impl Dumps {
    /// The JSON text of a value, of at most `most` bytes.
    pub(super) fn write(&self, value: &Value, most: usize) -> Result<String, TooLong> {
        let mut out = Bounded {
            text: String::new(),
            most,
        };
        self.value(value, 0, &mut out)?;
        Ok(out.text)
    }

    fn value(&self, value: &Value, depth: usize, out: &mut Bounded) -> Result<(), TooLong> {
        match value {
            Value::Null => out.push_str("null"),
            Value::Bool(true) => out.push_str("true"),
            Value::Bool(false) => out.push_str("false"),
            Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
                Some(float) => out.push_str(&float_repr(float)),
                None => out.push_str(&number.to_string()),
            },
            Value::String(text) => string(text, self.ensure_ascii, out),
            Value::Array(items) => self.array(items, depth, out),
            Value::Object(map) => self.object(map, depth, out),
        }
    }

    fn array(&self, items: &[Value], depth: usize, out: &mut Bounded) -> Result<(), TooLong> {
        out.push('[')?;
        for (index, item) in items.iter().enumerate() {
            self.separate(index, depth, out)?;
            self.value(item, depth + 1, out)?;
        }
        self.close(']', items.len(), depth, out)
    }

    fn object(
        &self,
        map: &Map<String, Value>,
        depth: usize,
        out: &mut Bounded,
    ) -> Result<(), TooLong> {
        let mut entries: Vec<(&String, &Value)> = map.iter().collect();
        if self.sort_keys {
            entries.sort_by(|a, b| a.0.cmp(b.0));
        }
        out.push('{')?;
        for (index, (key, value)) in entries.into_iter().enumerate() {
            self.separate(index, depth, out)?;
            string(key, self.ensure_ascii, out)?;
            out.push_str(&self.key_separator)?;
            self.value(value, depth + 1, out)?;
        }
        self.close('}', map.len(), depth, out)
    }

    fn separate(&self, index: usize, depth: usize, out: &mut Bounded) -> Result<(), TooLong> {
        if index > 0 {
            out.push_str(&self.item_separator)?;
        }
        self.line(depth + 1, out)
    }

    fn close(
        &self,
        bracket: char,
        items: usize,
        depth: usize,
        out: &mut Bounded,
    ) -> Result<(), TooLong> {
        if items > 0 {
            self.line(depth, out)?;
        }
        out.push(bracket)
    }

    fn line(&self, depth: usize, out: &mut Bounded) -> Result<(), TooLong> {
        let Some(indent) = &self.indent else {
            return Ok(());
        };
        out.push('\n')?;
        (0..depth).try_for_each(|_| out.push_str(indent))
    }
}

fn string(text: &str, ensure_ascii: bool, out: &mut Bounded) -> Result<(), TooLong> {
    out.push('"')?;
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..'\u{20}' => escape(character, out),
            '\u{80}'.. if ensure_ascii => escape(character, out),
            _ => out.push(character),
        }?;
    }
    out.push('"')
}

/// Writes a character as one or two `\uXXXX`.
fn escape(character: char, out: &mut Bounded) -> Result<(), TooLong> {
    (character.encode_utf16(&mut [0; 2]).iter())
        .try_for_each(|unit| out.push_str(&format!("\\u{unit:04x}")))
}

/// `repr` of a Python float: the shortest digits, an exponent below 1e-4 and from 1e16.
pub(super) fn float_repr(value: f64) -> String {
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..16).contains(&exponent) {
        let plain = format!("{value}");
        return if plain.contains('.') {
            plain
        } else {
            plain + ".0"
        };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}
