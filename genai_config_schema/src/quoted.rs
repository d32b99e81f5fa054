//! Words of files in messages: a name may have any length, a message may not.

use std::borrow::Cow;

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
    shortened(name, MAX_QUOTED)
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
}
