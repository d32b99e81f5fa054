//! The template environment that Hugging Face chat templates expect.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, escape_formatter};

use super::kept;
use super::python_json::Dumps;
use super::template_format;
use crate::limits::{TEMPLATE_CALLS, TEMPLATE_DATE_BYTES, TEMPLATE_OUTPUT};

/// The message of `raise_exception`, found again as the source of the render error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Raised(pub(super) String);

/// An environment with the settings and functions of `transformers`.
pub(super) fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build();
    if let Ok(syntax) = syntax {
        env.set_syntax(syntax);
    }
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_recursion_limit(TEMPLATE_CALLS);
    env.set_unknown_method_callback(python_method);
    kept::add_filters(&mut env);
    env.set_formatter(|out, state, value| {
        let kind = value.kind();
        if kind == ValueKind::None {
            return out.write_str("None").map_err(Error::from);
        }
        if kind == ValueKind::Bool {
            let text = if value.is_true() { "True" } else { "False" };
            return out.write_str(text).map_err(Error::from);
        }
        escape_formatter(out, state, value)
    });
    env.add_test("iterable", is_iterable);
    env.add_test("sequence", is_sequence);
    env.add_filter("tojson", to_json);
    env.add_filter("format", template_format::filter);
    // It prints every variable, as often as it is held.
    env.remove_global("debug");
    env.add_function("raise_exception", raise_exception);
    env.add_function("strftime_now", strftime_now);
    env
}

/// Bytes of a text that a method reads for one unit of fuel.
const BYTES_PER_FUEL: usize = 4;

/// Methods of Python's values. They know no fuel, so it is taken before.
fn python_method(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        let bytes = u64::try_from(text.len() / BYTES_PER_FUEL).unwrap_or(u64::MAX);
        state.consume_fuel(bytes)?;
        if method == "format" {
            template_format::check_method(state, text, args)?;
        }
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args)
}

/// As in Python: none is not iterable, an undefined value is.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// As in Python: what has a length and takes an index, which includes strings and mappings.
fn is_sequence(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Undefined
    )
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

/// The local time, formatted.
fn strftime_now(format: String) -> Result<String, Error> {
    // A directive of five letters can ask for 255 columns.
    if format.len() > TEMPLATE_DATE_BYTES {
        let bytes = format.len();
        let message = format!(
            "strftime_now: a format of {bytes} bytes, at most {TEMPLATE_DATE_BYTES} are taken"
        );
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    let now = jiff::ZonedDateTime::now();
    jiff::fmt::strtime::format(&format, &now).map_err(|error| {
        Error::new(
            ErrorKind::InvalidOperation,
            format!("strftime_now: {error}"),
        )
    })
}

/// `json.dumps(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
fn to_json(
    value: &Value,
    ensure_ascii: Option<bool>,
    indent: Option<Value>,
    options: Kwargs,
) -> Result<String, Error> {
    if value.is_undefined() {
        return Err(Error::new(
            ErrorKind::UndefinedError,
            "tojson of an undefined value",
        ));
    }
    let indent = indent.or(options.get("indent")?);
    let indent = match indent.filter(|indent| !indent.is_none()) {
        None => None,
        Some(text) if text.kind() == ValueKind::String => Some(text.to_string()),
        Some(count) => Some(" ".repeat(usize::from(u8::try_from(count)?))),
    };
    let separators: Option<Vec<String>> = options.get("separators")?;
    let (item, key) = match separators.as_deref() {
        None if indent.is_some() => (",", ": "),
        None => (", ", ": "),
        Some([item, key]) => (item.as_str(), key.as_str()),
        Some(_) => {
            let message = "tojson: separators must be a pair";
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
    };
    let dumps = Dumps {
        ensure_ascii: ensure_ascii
            .or(options.get("ensure_ascii")?)
            .unwrap_or(false),
        item_separator: item.to_owned(),
        key_separator: key.to_owned(),
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        indent,
    };
    options.assert_all_used()?;
    let json = serde_json::to_value(value).map_err(|error| {
        Error::new(ErrorKind::BadSerialization, "cannot write as JSON").with_source(error)
    })?;
    dumps.write(&json, TEMPLATE_OUTPUT).map_err(|error| {
        Error::new(ErrorKind::BadSerialization, "cannot write as JSON").with_source(error)
    })
}

/// A template's text as the parser needs it: line ends become `\n`, as in jinja2, and
/// `{% generation %}` blocks, which mark the assistant's text for training, become blocks that always
/// render. Whitespace control stays as it is.
pub(super) fn normalize(source: &str) -> String {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = String::with_capacity(source.len());
    let mut rest = source.as_str();
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        out.push_str(before);
        let end = tag.find("%}").map_or(tag.len(), |end| end + 2);
        let (tag, after) = tag.split_at(end);
        let word = tag.trim_start_matches("{%").trim_start_matches(['-', '+']);
        let word = word
            .trim_end_matches("%}")
            .trim_end_matches(['-', '+'])
            .trim();
        match word {
            "generation" => out.push_str(&tag.replacen("generation", "if true", 1)),
            "endgeneration" => out.push_str(&tag.replacen("endgeneration", "endif", 1)),
            _ => out.push_str(tag),
        }
        rest = after;
    }
    out + rest
}
