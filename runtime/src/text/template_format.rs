//! How long a text that a template formats can become, told before it is made.
//!
//! `{0}` costs three letters each time and stands for an argument of any length; `{:9999}` asks for columns. The code that
//! formats counts neither, so what the fields of a format text can add up to is compared with what a prompt may have.

use std::fmt::{self, Write};

use minijinja::value::{Rest, Value, ValueOrKwargs};
use minijinja::{Error, ErrorKind, State};

use crate::limits::{TEMPLATE_COLUMNS, TEMPLATE_OUTPUT};

/// Bytes of a number in any notation.
const NUMBER: usize = 512;
/// Bytes of the letter that fills a column.
const LETTER: usize = 4;
/// Bytes for one unit of fuel, as the template engine counts.
const BYTES_PER_FUEL: usize = 64;

/// Jinja's filter `format`, after a look at what it would make.
pub(super) fn filter(
    state: &mut State<'_, '_>,
    text: &Value,
    args: Rest<ValueOrKwargs>,
) -> Result<Value, Error> {
    if let Some(text) = text.as_str() {
        let values: Vec<Value> = args
            .iter()
            .cloned()
            .map(ValueOrKwargs::into_value)
            .collect();
        refuse_long(state, percents(text), text, &values)?;
    }
    minijinja::filters::format(state, text, args)
}

/// Looks at what Python's `text.format(args)` would make.
pub(super) fn check_method(state: &State<'_, '_>, text: &str, args: &[Value]) -> Result<(), Error> {
    refuse_long(state, braces(text), text, args)
}

fn refuse_long(
    state: &State<'_, '_>,
    asked: Asked,
    text: &str,
    args: &[Value],
) -> Result<(), Error> {
    let refused = |what: String| Err(Error::new(ErrorKind::InvalidOperation, what));
    if asked.widest > TEMPLATE_COLUMNS {
        return refused(format!(
            "format: more than {TEMPLATE_COLUMNS} columns or digits in one field"
        ));
    }
    let longest = args.iter().map(printed).max().unwrap_or(0);
    state.consume_fuel(u64::try_from(longest / BYTES_PER_FUEL).unwrap_or(u64::MAX))?;
    let fields = asked.fields.saturating_mul(longest.saturating_add(NUMBER));
    let columns = asked.columns.saturating_mul(LETTER);
    if text.len().saturating_add(fields).saturating_add(columns) > TEMPLATE_OUTPUT {
        return refused(format!(
            "format: the text could have more than {TEMPLATE_OUTPUT} bytes"
        ));
    }
    Ok(())
}

/// Bytes of a value as text, counted up to a little more than may be.
fn printed(value: &Value) -> usize {
    let mut count = Count(0);
    // An error only says that the count has gone far enough.
    let _ = write!(count, "{value}");
    count.0
}

struct Count(usize);

impl Write for Count {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = self.0.saturating_add(text.len());
        match self.0 > TEMPLATE_OUTPUT {
            true => Err(fmt::Error),
            false => Ok(()),
        }
    }
}

/// What the fields of a format text ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Asked {
    fields: usize,
    /// Widths and precisions, together and the largest.
    columns: usize,
    widest: usize,
}

impl Asked {
    /// Takes in the numbers of a field's description.
    fn field(&mut self, description: &[u8]) {
        self.fields += 1;
        for digits in description.split(|byte| !byte.is_ascii_digit()) {
            let number = digits.iter().fold(0usize, |number, digit| {
                let digit = usize::from(digit.wrapping_sub(b'0'));
                number.saturating_mul(10).saturating_add(digit)
            });
            self.columns = self.columns.saturating_add(number);
            self.widest = self.widest.max(number);
        }
    }
}

/// The fields of a text for Python's `str.format`: `{name[key].attribute:fill<width.precision}`.
fn braces(text: &str) -> Asked {
    let mut asked = Asked::default();
    let mut rest = text;
    while let Some((_, field)) = rest.split_once('{') {
        if let Some(after) = field.strip_prefix('{') {
            rest = after;
            continue;
        }
        let described = after_name(field);
        let described = after_fill(described);
        let (description, after) = described.split_once('}').unwrap_or((described, ""));
        asked.field(description.as_bytes());
        rest = after;
    }
    asked
}

/// What follows the name of a field; its keys may hold anything but `]`.
fn after_name(field: &str) -> &str {
    let mut rest = field;
    while let Some(at) = rest.find(['[', ':', '}']) {
        let (_, found) = rest.split_at(at);
        if !found.starts_with('[') {
            return found;
        }
        rest = found.split_once(']').map_or("", |(_, after)| after);
    }
    ""
}

/// What follows the letter that fills a column, which may be a brace or a digit.
fn after_fill(described: &str) -> &str {
    let Some(described) = described.strip_prefix(':') else {
        return described;
    };
    let mut letters = described.chars();
    letters.next();
    match letters.next() {
        Some('<' | '>' | '^') => letters.as_str(),
        _ => described,
    }
}

/// The fields of a text for `%`: `%(key)-08.3f`.
fn percents(text: &str) -> Asked {
    let mut asked = Asked::default();
    let mut rest = text;
    while let Some((_, field)) = rest.split_once('%') {
        if let Some(after) = field.strip_prefix('%') {
            rest = after;
            continue;
        }
        let keyed = field.strip_prefix('(').and_then(|key| key.split_once(')'));
        let described = keyed.map_or(field, |(_, after)| after);
        let after = described.trim_start_matches(|letter: char| "#- +.0123456789".contains(letter));
        let description = described.len() - after.len();
        asked.field(described.as_bytes().get(..description).unwrap_or_default());
        rest = after;
    }
    asked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(fields: usize, columns: usize, widest: usize) -> Asked {
        Asked {
            fields,
            columns,
            widest,
        }
    }

    #[test]
    fn fields_of_braces_are_found() {
        for (text, found) in [
            ("2025 {{ 17 }} {", asked(1, 0, 0)),
            ("{} {0} {name}", asked(3, 0, 0)),
            ("{:5}{:.3f}", asked(2, 8, 5)),
            ("{:}<70}", asked(1, 70, 70)),
            ("{:9<7}", asked(1, 7, 7)),
            ("{0[}]:80}", asked(1, 80, 80)),
            ("{0[{]:80}", asked(1, 80, 80)),
            ("{0[a:5}].b:\u{e9}^80}", asked(1, 80, 80)),
            (
                "{:99999999999999999999999}",
                asked(1, usize::MAX, usize::MAX),
            ),
        ] {
            assert_eq!(braces(text), found, "{text}");
        }
    }

    #[test]
    fn fields_of_percents_are_found() {
        for (text, found) in [
            ("100 %% %s %d", asked(2, 0, 0)),
            ("%5d%-08.3f", asked(2, 16, 8)),
            ("%(a 9)s %(b)70s", asked(2, 70, 70)),
            ("%", asked(1, 0, 0)),
        ] {
            assert_eq!(percents(text), found, "{text}");
        }
    }
}
