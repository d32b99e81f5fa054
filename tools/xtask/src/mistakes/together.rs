//! Many mistakes in one build: a function that somebody makes mistakes in gets a body for each, and one for none, chosen
//! by a variable of the environment.

use super::Mistake;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::{Range, RangeInclusive};

/// Names the mistake that a process makes.
pub(super) const VARIABLE: &str = "PAWL_MISTAKE";

/// A function with mistakes in it.
#[derive(Debug)]
pub(super) struct Function {
    /// Its lines in the text that was made.
    pub(super) lines: RangeInclusive<usize>,
    pub(super) mistakes: Vec<&'static Mistake>,
}

/// A file with every mistake of it that changes nothing but the body of one function, and those functions. Mistakes in
/// constants, signatures, `const` functions, and functions of an opaque type are left out: they are built alone.
pub(super) fn combine(text: &str, mistakes: &[&'static Mistake]) -> (String, Vec<Function>) {
    let bodies = bodies(text);
    let mut chosen: BTreeMap<(usize, usize), Vec<(&'static Mistake, String)>> = BTreeMap::new();
    for mistake in mistakes {
        let Some((change, new)) = change(text, mistake) else {
            continue;
        };
        let around = bodies
            .iter()
            .filter(|body| body.start <= change.start && change.end <= body.end);
        let Some(body) = around.min_by_key(|body| body.len()) else {
            continue;
        };
        let part = |range| text.get(range).unwrap_or_default();
        let (before, after) = (body.start..change.start, change.end..body.end);
        let mistaken = [part(before), new, part(after)].concat();
        let of = chosen.entry((body.start, body.end)).or_default();
        of.push((mistake, mistaken));
    }
    write(text, chosen)
}

fn write(
    text: &str,
    chosen: BTreeMap<(usize, usize), Vec<(&'static Mistake, String)>>,
) -> (String, Vec<Function>) {
    let (mut out, mut functions, mut done) = (String::new(), Vec::new(), 0);
    let line = |out: &str| out.matches('\n').count() + 1;
    for ((start, end), of) in chosen {
        // A function within one that has been written already.
        if start < done {
            continue;
        }
        out.push_str(text.get(done..start).unwrap_or_default());
        let first = line(&out);
        for (mistake, body) in &of {
            let name = mistake.name;
            let _ = write!(
                out,
                "if {{ static ON: ::std::sync::OnceLock<bool> = ::std::sync::OnceLock::new(); \
                 *ON.get_or_init(|| ::std::env::var_os(\"{VARIABLE}\").is_some_and(|name| name == \"{name}\")) }} \
                 {{{body}\n}} else "
            );
        }
        let _ = write!(out, "{{{}\n}}", text.get(start..end).unwrap_or_default());
        functions.push(Function {
            lines: first..=line(&out),
            mistakes: of.into_iter().map(|(mistake, _)| mistake).collect(),
        });
        done = end;
    }
    out.push_str(text.get(done..).unwrap_or_default());
    (out, functions)
}

/// What a mistake changes, without what its text and its replacement begin and end with, and what comes there instead.
fn change(text: &str, mistake: &'static Mistake) -> Option<(Range<usize>, &'static str)> {
    let start = text.find(mistake.text)?;
    let (old, new) = (mistake.text, mistake.replacement);
    let same = |pairs: &mut dyn Iterator<Item = (char, char)>| {
        let same = pairs.take_while(|(a, b)| a == b);
        same.map(|(a, _)| a.len_utf8()).sum::<usize>()
    };
    let front = same(&mut old.chars().zip(new.chars()));
    let (old, new) = (old.get(front..)?, new.get(front..)?);
    let back = same(&mut old.chars().rev().zip(new.chars().rev()));
    let start = start + front;
    let end = start + old.len() - back;
    Some((start..end, new.get(..new.len() - back)?))
}

/// What lies between the braces of every function that can have several bodies.
fn bodies(text: &str) -> Vec<Range<usize>> {
    let code = blank(text);
    let (mut bodies, mut open, mut nesting) = (Vec::new(), Vec::new(), 0_usize);
    // Where the header of a function began, and how deep in parentheses.
    let mut header: Option<(usize, usize)> = None;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'(' | b'[' => nesting += 1,
            b')' | b']' => nesting = nesting.saturating_sub(1),
            b'f' if is_function(&code, at) => header = Some((at, nesting)),
            b';' if header.is_some_and(|(_, deep)| deep == nesting) => header = None,
            b'{' => {
                let begins = header.take_if(|(_, deep)| *deep == nesting);
                open.push((begins.map(|(start, _)| start), at));
            }
            b'}' => {
                if let Some((Some(start), brace)) = open.pop()
                    && can_choose(&code, start, brace)
                {
                    bodies.push(brace + 1..at);
                }
            }
            _ => {}
        }
    }
    bodies
}

/// Whether the header of a function with a name begins here.
fn is_function(code: &str, at: usize) -> bool {
    let before = code.get(..at).and_then(|before| before.chars().next_back());
    let named = code.get(at..).and_then(|rest| rest.strip_prefix("fn "));
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    !before.is_some_and(is_name) && named.is_some_and(|name| name.starts_with(is_name))
}

/// Whether a function whose header lies there can choose among bodies when it runs.
fn can_choose(code: &str, start: usize, brace: usize) -> bool {
    let line = code
        .get(..start)
        .and_then(|before| before.rsplit('\n').next());
    let header = code.get(start..brace).unwrap_or_default();
    !line.is_some_and(|line| line.contains("const ")) && !header.contains("-> impl ")
}

/// The text with spaces for comments, strings and characters, every byte in its place.
fn blank(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let named = out.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let length = literal(rest, named);
        let (taken, after) = rest.split_at(length.unwrap_or(first.len_utf8()));
        match length {
            None => out.push_str(taken),
            Some(_) => out.extend(taken.bytes().map(|b| if b == b'\n' { '\n' } else { ' ' })),
        }
        rest = after;
    }
    out
}

/// How long the comment, string or character is that a text begins with. `named`: a name ends right before it.
fn literal(text: &str, named: bool) -> Option<usize> {
    let ends = |from: usize, end: &str| {
        let found = text.get(from..).and_then(|rest| rest.find(end));
        found.map_or(text.len(), |at| from + at + end.len())
    };
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return Some(ends(2, "*/"));
    }
    if let Some(raw) = text.strip_prefix('r').filter(|_| !named) {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        let is_string = raw.get(hashes..).is_some_and(|rest| rest.starts_with('"'));
        let end = ["\"", &"#".repeat(hashes)].concat();
        return is_string.then(|| ends(hashes + 2, &end));
    }
    let quote = text.chars().next().filter(|c| "\"'".contains(*c))?;
    let mut characters = text.char_indices().skip(1);
    // A lifetime is no character.
    if quote == '\'' && !text.starts_with("'\\") && text.chars().nth(2) != Some('\'') {
        return None;
    }
    while let Some((at, c)) = characters.next() {
        if c == '\\' {
            characters.next();
        } else if c == quote && at > 0 {
            return Some(at + 1);
        }
    }
    Some(text.len())
}

#[cfg(test)]
mod tests {
    use super::super::unit;
    use super::*;

    const TEXT: &str = r##"
const N: usize = 1; // fn not() {
const fn two() -> usize { N + 1 }
fn opaque() -> impl Fn() -> usize { || N + 2 }
impl<'a> Odd<'a> {
    fn of(&self, list: [u8; 4]) -> char {
        let text = r#"} " fn"#;
        fn inner() -> u8 { 3 }
        if list[0] == b'"' { '}' } else { '\'' }
    }
}
"##;

    const fn mistake(name: &'static str, text: &'static str, replacement: &'static str) -> Mistake {
        Mistake {
            name,
            file: "f",
            text,
            replacement,
            test: unit("t"),
        }
    }

    static NONE: [Mistake; 3] = [
        mistake("constant", "usize = 1", "usize = 2"),
        mistake("constant-function", "N + 1", "N + 9"),
        mistake("opaque", "N + 2", "N + 9"),
    ];
    static SOME: [Mistake; 2] = [
        mistake("first", "list[0]", "list[1]"),
        mistake("second", "if list[0] == b'\"' {", "if list[0] != b'\"' {"),
    ];

    #[test]
    fn only_bodies_of_functions_are_chosen_from() {
        let all: Vec<_> = NONE.iter().collect();
        let (text, functions) = combine(TEXT, &all);
        assert_eq!((text.as_str(), functions.len()), (TEXT, 0));
    }

    #[test]
    fn each_mistake_has_a_body_and_the_last_has_none() {
        let all: Vec<_> = SOME.iter().collect();
        let (text, functions) = combine(TEXT, &all);
        let [function] = &functions[..] else {
            panic!("{functions:?}")
        };
        assert_eq!(function.mistakes.len(), 2);
        let wrong: Vec<_> = ["list[1] == b", "list[0] != b", "list[0] == b"]
            .iter()
            .map(|part| (text.matches(part).count(), text.find(part).unwrap()))
            .collect();
        assert!(wrong.is_sorted() && wrong.iter().all(|(count, _)| *count == 1));
        let line = |part: &str| text[..text.find(part).unwrap()].lines().count();
        assert!(
            function.lines.contains(&line("list[1]")) && !function.lines.contains(&line("impl<"))
        );
        assert!(text.contains(r#"name == "second")"#));
    }

    #[test]
    fn of_a_function_within_another_only_one_is_written() {
        static INNER: Mistake = mistake("inner", "{ 3 }", "{ 4 }");
        let (_, functions) = combine(TEXT, &[&INNER]);
        assert_eq!(functions.len(), 1);
        let (_, functions) = combine(TEXT, &[&INNER, &SOME[0]]);
        let names: Vec<_> = functions.iter().map(|of| of.mistakes[0].name).collect();
        assert_eq!(names, ["first"]);
    }

    #[test]
    fn only_what_differs_is_changed() {
        let (range, new) = change(TEXT, &SOME[1]).unwrap();
        assert_eq!((&TEXT[range], new), ("=", "!"));
    }
}
