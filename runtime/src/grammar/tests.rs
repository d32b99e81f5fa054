//! Grammars without a model: masks, cursors, and what is refused.

use super::*;

use crate::text::tests::{byte_fallback, byte_level};
use proptest::prelude::*;
use std::sync::{Arc, LazyLock};

const VOCAB: u32 = 2048;
/// `<|im_end|>` of the shipped tokenizer.
const EOS: u32 = 2043;

static GRAMMARS: LazyLock<Grammars> = LazyLock::new(Grammars::default);

fn read(grammar: &Grammar, begun: &[u32], ends: &[u32]) -> Result<GrammarCursor, GrammarError> {
    let tokenizer = byte_level();
    GRAMMARS.cursor(grammar, (begun, 0), ends.into(), (&tokenizer, VOCAB))
}

/// The tokens that may follow; none where that cannot be said.
pub(crate) fn allowed(cursor: &GrammarCursor, vocab: usize) -> Vec<u32> {
    let mut logits = vec![0.0; vocab];
    if cursor.is_complete() || cursor.clone().mask(&mut logits).is_err() {
        return Vec::new();
    }
    let finite = (0..).zip(logits).filter(|(_, logit)| *logit == 0.0);
    finite.map(|(token, _)| token).collect()
}

fn spelled(tokens: &[u32]) -> String {
    byte_level().decode(tokens, false).unwrap()
}

/// Draws tokens at random until the text ends or has so many; `None` for a text that has not ended.
fn text_of(mut cursor: GrammarCursor, choices: &[u16]) -> (String, bool) {
    let mut tokens = Vec::new();
    for choice in choices {
        let allowed = allowed(&cursor, VOCAB as usize);
        let token = allowed[usize::from(*choice) % allowed.len()];
        cursor.accept(token).unwrap();
        if token == EOS {
            return (spelled(&tokens), true);
        }
        tokens.push(token);
        if cursor.is_complete() {
            return (spelled(&tokens), true);
        }
    }
    (spelled(&tokens), false)
}

fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == 10
        && bytes.iter().enumerate().all(|(at, byte)| match at {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}

fn is_sum(text: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    text.split('+')
        .all(|part| is_number(part.trim_matches(['(', ')'])))
        && text.matches('(').count() == text.matches(')').count()
}

fn is_person(text: &str) -> bool {
    let Ok(serde_json::Value::Object(value)) = serde_json::from_str(text) else {
        return false;
    };
    value["age"].is_u64()
        && value["name"]
            .as_str()
            .is_some_and(|name| name.chars().count() <= 4)
}

type Check = fn(&str) -> bool;

fn grammars() -> [(Grammar, Check); 3] {
    let schema = r##"{"type": "object", "properties": {
        "name": {"$ref": "#/$defs/short"}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
        "required": ["name", "age"], "additionalProperties": false,
        "$defs": {"short": {"type": "string", "maxLength": 4}}}"##;
    let sum = "start: term (\"+\" term)*\nterm: NUMBER | \"(\" NUMBER \")\"\nNUMBER: /[0-9]{1,2}/";
    [
        (Grammar::regex("[0-9]{4}-[0-9]{2}-[0-9]{2}"), is_date),
        (Grammar::lark(sum), is_sum),
        (Grammar::json_schema(schema), is_person),
    ]
}

/// Guesses of which some are not allowed, and how many of them may follow by the masks.
fn judged(mut at: GrammarCursor, choices: &[(u16, u8)]) -> (Vec<u32>, usize) {
    let (mut path, mut legal) = (Vec::new(), None);
    for (choice, how) in choices {
        let allowed = allowed(&at, VOCAB as usize);
        let token = match how {
            0 => u32::from(*choice) % VOCAB,
            1 => EOS,
            _ if allowed.is_empty() => 5,
            _ => allowed[usize::from(*choice) % allowed.len()],
        };
        if legal.is_none() && !allowed.contains(&token) {
            legal = Some(path.len());
        }
        path.push(token);
        if legal.is_none() && token == EOS {
            legal = Some(path.len());
        }
        if legal.is_none() {
            at.accept(token).unwrap();
        }
    }
    let legal = legal.unwrap_or(path.len());
    (path, legal)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn whatever_may_follow_makes_a_text_of_the_grammar(choices in prop::collection::vec(any::<u16>(), 60)) {
        for (grammar, is_of) in grammars() {
            for ends in [&[][..], &[EOS]] {
                let (text, ended) = text_of(read(&grammar, &[], ends).unwrap(), &choices);
                prop_assert!(!ended || is_of(&text), "{grammar:?}: {text:?}");
            }
        }
    }

    /// Guesses are legal exactly as far as each of them is allowed behind those before it.
    #[test]
    fn guesses_are_judged_as_they_would_be_drawn(
        choices in prop::collection::vec((any::<u16>(), 0..4_u8), 0..12), skip in 0_usize..4,
    ) {
        for (grammar, _) in grammars() {
            let mut cursor = read(&grammar, &[], &[EOS]).unwrap();
            for _ in 0..skip {
                let first = allowed(&cursor, VOCAB as usize)[0];
                cursor.accept(first).unwrap();
            }
            let (path, legal) = judged(cursor.clone(), &choices);
            prop_assert_eq!(cursor.legal(&path), legal, "{:?} {:?}", grammar, path);
        }
    }

    /// Every text's own tokens spell it, whichever way tokens are written.
    #[test]
    fn tokens_spell_what_they_say(text in "[a-c é日\n\u{1F600}]{1,12}") {
        for tokenizer in [byte_level(), byte_fallback()] {
            let size = u32::try_from(tokenizer.vocab_size()).unwrap();
            let escaped: String = text.chars().map(|c| format!("\\x{{{:x}}}", u32::from(c))).collect();
            let tokens = tokenizer.encode(&text, false).unwrap();
            let spelled: Vec<u8> = tokens.iter().flat_map(|id| tokenizer.token_bytes(*id).unwrap()).collect();
            let spelled = String::from_utf8(spelled).unwrap();
            prop_assert_eq!(spelled.trim_start_matches(' '), text.trim_start_matches(' '));
            if spelled == text {
                let grammar = Grammar::regex(&escaped);
                let ends: Arc<[u32]> = [].into();
                let cursor = Grammars::default().cursor(&grammar, (&[], 0), ends, (&tokenizer, size));
                prop_assert_eq!(cursor.unwrap().legal(&tokens), tokens.len());
            }
        }
    }
}

#[test]
fn copies_go_their_own_ways() {
    let digits = byte_level().encode("0123", false).unwrap();
    let mut first = read(&Grammar::regex("0(12)?3|01*"), &[], &[EOS]).unwrap();
    first.accept(digits[0]).unwrap();
    let before = allowed(&first, VOCAB as usize);
    let mut second = first.clone();
    for digit in &digits[1..] {
        second.accept(*digit).unwrap();
    }
    assert!(second.is_complete() && !first.is_complete());
    assert_eq!(allowed(&first, VOCAB as usize), before);
    assert!(first.accept(5).is_err());
    let mut third = second.clone();
    assert!(third.accept(digits[0]).is_err());
    assert!(second.is_complete());
}

#[test]
fn what_cannot_be_used_is_an_error_that_says_which_kind_and_why() {
    let long = "a".repeat(crate::limits::GRAMMAR_BYTES + 1);
    let nested = format!("start: {}\"a\"{}", "(".repeat(9000), ")".repeat(9000));
    let chain: String = (0..9000)
        .map(|i| format!("r{i}: \"x\" r{}\n", i + 1))
        .collect();
    let chain = format!("start: r0\n{chain}r9000: \"y\"");
    let schema = Grammar::json_schema;
    for (grammar, words) in [
        (
            Grammar::regex("(foo"),
            &["regular expression", "unclosed group"][..],
        ),
        (
            Grammar::regex("a(?=b)"),
            &["regular expression", "look-around"],
        ),
        (Grammar::regex(&long), &["262145 bytes, at most 262144"]),
        (Grammar::regex("(".repeat(100_000)), &["regular expression"]),
        (
            Grammar::regex("[^\\x00-\\x{10FFFF}]"),
            &["regular expression", "no token can follow"],
        ),
        (Grammar::regex(""), &["allows nothing more"]),
        (Grammar::lark("start: foo"), &["Lark grammar", "foo"]),
        (Grammar::lark(nested), &["Lark grammar", "nested"]),
        (Grammar::lark(""), &["Lark grammar"]),
        (Grammar::regex("a\\"), &["lone backslash"]),
        (schema("{\"type\":"), &["JSON schema", "line 1 column"]),
        (
            schema(r#"{"type": "nothing"}"#),
            &["JSON schema", "nothing"],
        ),
        (
            schema(r#"{"$ref": "http://a.b/c"}"#),
            &["JSON schema", "http://a.b/c"],
        ),
        (schema("false"), &["JSON schema", "Unsatisfiable"]),
        (schema(&"[".repeat(100_000)), &["JSON schema", "recursion"]),
    ] {
        let error = read(&grammar, &[], &[]).unwrap_err().to_string();
        for word in words {
            assert!(error.contains(word), "{word}: {error}");
        }
        assert!(
            !error.contains("backtrace") && error.len() < 6000,
            "{error}"
        );
    }
    // Much, but no more than there may be.
    read(&Grammar::regex("a{1000000}"), &[], &[]).unwrap();
    read(&Grammar::lark(chain), &[], &[]).unwrap();
}

#[test]
fn a_text_that_has_begun_in_the_prompt_is_followed() {
    let grammar = Grammar::regex("[0-9]{2}-[0-9]{2}");
    let tokens = byte_level().encode("12-34", false).unwrap();
    for done in 0..tokens.len() {
        let begun = read(&grammar, &tokens[..done], &[EOS]).unwrap();
        let mut fresh = read(&grammar, &[], &[EOS]).unwrap();
        tokens[..done]
            .iter()
            .for_each(|token| fresh.accept(*token).unwrap());
        assert_eq!(
            allowed(&begun, VOCAB as usize),
            allowed(&fresh, VOCAB as usize)
        );
    }
    let refused = |begun: &[u32]| read(&grammar, begun, &[EOS]).unwrap_err();
    assert!(matches!(refused(&tokens), GrammarError::Complete { .. }));
    let wrong = [&tokens[..2], &[5]].concat();
    assert!(matches!(
        refused(&wrong),
        GrammarError::Prompt {
            index: 2,
            id: 5,
            ..
        }
    ));
    let ended = [&tokens[..2], &[EOS]].concat();
    assert!(matches!(
        refused(&ended),
        GrammarError::Prompt { index: 2, .. }
    ));
}
