//! Words of files in messages: a name may have any length, a message may not.

use std::borrow::Cow;
use std::fmt;

/// Bytes of a name, or of another word of a file, that a message quotes.
pub const MAX_QUOTED: usize = 256;
/// Bytes of what else comes from outside and is told as a whole, such as what a parser says.
pub const MAX_TOLD: usize = 4096;
/// Names or problems of one kind that a message lists.
pub const MAX_LISTED: usize = 64;

/// A name as a message quotes it: whole, or its beginning and its end around how much was left out.
///
/// ```
/// use genai_config_schema::quoted;
///
/// assert_eq!(quoted("model.norm.weight"), "model.norm.weight");
/// assert!(quoted(&"n".repeat(1 << 20)).len() < 300);
/// ```
#[must_use]
pub fn quoted(name: &str) -> Cow<'_, str> {
    let name = shortened(name, MAX_QUOTED);
    // A name that ends lines could pass for other messages.
    match name.contains('\n') {
        true => Cow::Owned(name.replace('\n', "\\n")),
        false => name,
    }
}

/// A text of about `most` bytes at most: whole, or its beginning and its end around how much was left out.
///
/// ```
/// let text = "x".repeat(1000);
/// assert!(genai_config_schema::shortened(&text, 20).contains("[980 bytes]"));
/// ```
#[must_use]
pub fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    // What matters comes first; a file's end and a place come last.
    let start = text.get(..text.floor_char_boundary(most - most / 4));
    let end = text.get(text.ceil_char_boundary(text.len() - most / 4)..);
    let (start, end) = (start.unwrap_or_default(), end.unwrap_or_default());
    let left = text.len() - start.len() - end.len();
    Cow::Owned(format!("{start}...[{left} bytes]...{end}"))
}

/// A number with what it counts.
///
/// ```
/// use genai_config_schema::counted;
///
/// assert_eq!((counted(1, "token"), counted(0, "token")), ("1 token".to_owned(), "0 tokens".to_owned()));
/// ```
#[must_use]
pub fn counted(count: impl fmt::Display, noun: &str) -> String {
    let count = count.to_string();
    let ending = if count == "1" { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// A text as it goes to a terminal: what would move, colour or turn around other text is told as an escape. Line ends and
/// tabs stay.
///
/// ```
/// assert_eq!(genai_config_schema::printable("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
/// ```
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    let acts = |letter: char| {
        let stays = matches!(letter, '\n' | '\t');
        let turns = matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        (letter.is_control() && !stays) || turns
    };
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match acts(letter) {
            true => shown.extend(letter.escape_unicode()),
            false => shown.push(letter),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_is_whole_and_what_is_long_is_cut_at_characters() {
        assert_eq!(quoted(&"é".repeat(128)), "é".repeat(128));
        let cut = shortened("aéééééééé", 8);
        assert_eq!(cut, "aéé...[10 bytes]...é");
        assert!(shortened(&"é".repeat(5000), MAX_TOLD).len() < MAX_TOLD + 30);
    }

    #[test]
    fn nothing_that_is_printed_acts_on_a_terminal() {
        assert_eq!(printable("é\tü\n"), "é\tü\n");
        assert_eq!(
            printable("a\rb\u{202e}c\u{9b}d"),
            "a\\u{d}b\\u{202e}c\\u{9b}d"
        );
        assert_eq!(quoted("one\nerror: two"), "one\\nerror: two");
    }
}
