//! What is wrong with a file that is no trace, and where: in words of JSON, not of the parser and its types.

use genai_config_schema::quoted;
use serde_json::Error;
use serde_json::error::Category;

/// Why a file is no trace.
pub(super) fn told(error: &Error) -> String {
    let (line, column) = (error.line(), error.column());
    let whole = error.to_string();
    let place = format!(" at line {line} column {column}");
    let text = whole.strip_suffix(&place).unwrap_or(&whole);
    let reason = match error.classify() {
        Category::Eof => "the file ends before the trace does".to_owned(),
        Category::Syntax | Category::Io => format!("not valid JSON: {}", quoted(text)),
        Category::Data => misplaced(text),
    };
    format!(
        "is not a trace, which `pawl generate --trace` writes: line {line}, column {column}: {reason}"
    )
}

/// A value that a trace does not have in its place.
fn misplaced(text: &str) -> String {
    if let Some(key) = text.strip_prefix("missing field ") {
        return format!("the key {key} is missing before this place");
    }
    if let Some(key) = text.strip_prefix("duplicate field ") {
        return format!("the key {key} appears twice");
    }
    let kinds = ["invalid type: ", "invalid value: ", "invalid length "];
    let found = kinds.iter().find_map(|kind| text.strip_prefix(kind));
    match found.and_then(|text| text.rsplit_once(", expected ")) {
        Some((length, wanted)) if text.starts_with("invalid length") => {
            format!("expected {}, found a list of {length}", expected(wanted))
        }
        Some((found, wanted)) => format!("expected {}, found {}", expected(wanted), value(found)),
        None => "expected something else".to_owned(),
    }
}

fn expected(wanted: &str) -> &str {
    match wanted {
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0",
        "f64" => "a number",
        "a string" => "a text",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        // What the types of a trace say of themselves.
        said => said,
    }
}

fn value(found: &str) -> String {
    let name = match found {
        "map" => "an object",
        "sequence" => "a list",
        "unit value" => "null",
        // A kind and the value, such as: integer `-1`, string "a".
        said => said
            .trim_start_matches(|letter: char| !"`\"".contains(letter))
            .trim_matches('`'),
    };
    // A kind without a value is told as it is.
    let name = if name.is_empty() { found } else { name };
    quoted(name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::format::Trace;
    use super::super::format::tests::trace;
    use serde_json::{Value, json};

    fn told(text: &str) -> String {
        let told = Trace::from_json(text.as_bytes()).unwrap_err();
        for word in [
            "struct", "u32", "u64", "usize", "f64", "EOF", "sequence", "invalid", "field", "map",
        ] {
            assert!(!told.contains(word), "`{word}` is in: {told}");
        }
        told
    }

    fn with(pointer: &str, value: Value) -> String {
        let mut trace = serde_json::to_value(trace()).unwrap();
        *trace.pointer_mut(pointer).unwrap() = value;
        told(&trace.to_string())
    }

    #[test]
    fn other_files_are_told_apart_by_what_they_lack() {
        let none = "is not a trace, which `pawl generate --trace` writes: line ";
        for (text, part) in [
            ("", "1, column 0: the file ends before the trace does"),
            ("{\"version\":", "the file ends"),
            ("hello", "line 1, column 1: not valid JSON: expected value"),
            (
                "{\n \"a\": 1,\n}",
                "line 3, column 1: not valid JSON: trailing comma",
            ),
            ("{\n}", "line 2, column 1: the key `version` is missing"),
            ("{\"version\": 1}", "the key `model` is missing"),
            ("3", "expected an object with the keys of a trace, found 3"),
            (
                "{\"version\": 1, \"version\": 1}",
                "the key `version` appears twice",
            ),
        ] {
            let told = told(text);
            assert!(told.starts_with(none) && told.contains(part), "{told}");
        }
        assert!(
            told("[1]").ends_with("found a list of 1"),
            "{}",
            told("[1]")
        );
    }

    #[test]
    fn values_are_told_as_they_stand_in_the_file() {
        let row = |key: &str| format!("/steps/0/rows/0/{key}");
        let number = "expected a whole number from 0";
        for (pointer, value, part) in [
            ("/version", json!("1"), format!("{number}, found \"1\"")),
            (
                "/model",
                json!([1]),
                "expected a text, found a list".to_owned(),
            ),
            (
                "/steps",
                json!({}),
                "expected a list, found an object".to_owned(),
            ),
            ("/settings", json!(null), "found null".to_owned()),
            (
                "/steps/0/seconds/run",
                json!("a"),
                "expected a number, found \"a\"".to_owned(),
            ),
            (
                &row("prompt"),
                json!(1),
                "expected true or false, found 1".to_owned(),
            ),
            (&row("past"), json!(-1), format!("{number}, found -1")),
            (&row("past"), json!(1.5), format!("{number}, found 1.5")),
            (
                &row("drawn/0/id"),
                json!(true),
                format!("{number} to 4294967295, found true"),
            ),
            (&row("drawn/0"), json!("a"), "expected a token".to_owned()),
        ] {
            let told = with(pointer, value);
            assert!(told.contains(&part), "{part}: {told}");
        }
    }

    #[test]
    fn a_message_is_short_whatever_stands_there() {
        let long = with("/steps", json!(", expected text".repeat(1 << 16)));
        assert!(
            long.len() < 1000 && long.contains("expected a list"),
            "{long}"
        );
    }
}
