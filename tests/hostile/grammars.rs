//! Grammars that are broken, endless, deep or never satisfied.

use super::case::Case;
use super::world::{model, write};

pub(crate) fn cases() -> Vec<Case> {
    [patterns(), files()].concat()
}

fn patterns() -> Vec<Case> {
    let case = |name: &str, pattern: &str, words: &[&str]| {
        Case::generate(name, &["--ids", "5,6", "--regex", pattern], words, model)
    };
    let deep = format!("{}a{}", "(".repeat(20_000), ")".repeat(20_000));
    let kind = "regular expression";
    vec![
        case(
            "a pattern that is not closed",
            "(a",
            &[kind, "unclosed group"],
        ),
        case(
            "a pattern that looks ahead",
            "a(?=b)",
            &[kind, "look-around"],
        ),
        case(
            "a pattern of 20,000 groups inside each other",
            &deep,
            &[kind],
        ),
        case("a pattern of no text", "", &["generated token"]).succeeds(),
        Case::generate(
            "a pattern of no text without an end",
            &["--ids", "5,6", "--regex", "", "--ignore-eos"],
            &[kind, "nothing to generate"],
            model,
        ),
        case(
            "a pattern of no character",
            "[^\\x00-\\x{10FFFF}]",
            &[kind, "no token can follow"],
        ),
        case(
            "a pattern of bytes that are no text",
            "(?-u:\\xFF)",
            &[kind],
        ),
        case(
            "a pattern of a million letters",
            "a{1000000}",
            &["generated tokens"],
        )
        .succeeds(),
        case(
            "patterns in patterns",
            "((a{1,1000}){1,1000}){1,1000}",
            &["generated tokens"],
        )
        .succeeds(),
    ]
}

fn files() -> Vec<Case> {
    let case = |name: &str, option: &str, text: String, words: &[&str]| {
        let args = ["--ids", "5,6", option, "{here}/grammar"];
        Case::generate(name, &args, words, move |here| {
            model(here);
            write(&here.join("grammar"), &text);
        })
    };
    let schema = |name: &str, text: &str, words: &[&str]| {
        case(name, "--json-schema", text.to_owned(), words)
    };
    let rules: String = (0..9000)
        .map(|i| format!("r{i}: \"x\" r{}\n", i + 1))
        .collect();
    let rules = format!("start: r0\n{rules}r9000: \"y\"");
    let refer = |i: u32| format!(r##""d{i}": {{"$ref": "#/$defs/d{}"}}"##, i + 1);
    let chain: Vec<String> = (0..4000).map(refer).collect();
    let chain = format!(
        r##"{{"$ref": "#/$defs/d0", "$defs": {{{}, "d4000": true}}}}"##,
        chain.join(",")
    );
    let open = "[".repeat(200_000);
    let deep = format!("start: {}\"a\"{}", "(".repeat(20_000), ")".repeat(20_000));
    vec![
        schema(
            "a schema that is not JSON",
            "{\"type\":",
            &["JSON schema", "line 1 column"],
        ),
        schema(
            "a schema of an unknown type",
            r#"{"type": "text"}"#,
            &["JSON schema", "text"],
        ),
        schema(
            "a schema that nothing fits",
            "false",
            &["JSON schema", "Unsatisfiable"],
        ),
        schema(
            "a schema elsewhere",
            r#"{"$ref": "http://127.0.0.1/s"}"#,
            &["JSON schema", "127.0.0.1"],
        ),
        schema(
            "a schema that is itself",
            r##"{"$ref": "#"}"##,
            &["JSON schema", "no token can follow"],
        ),
        schema("a schema of lists in lists", &open, &["JSON schema"]),
        case(
            "a schema of 4,000 references",
            "--json-schema",
            chain,
            &["generated tokens"],
        )
        .succeeds(),
        case(
            "300 KB of a schema",
            "--json-schema",
            " ".repeat(300_000),
            &["larger than 262144 bytes"],
        ),
        case(
            "a grammar without rules",
            "--lark",
            String::new(),
            &["Lark grammar"],
        ),
        case(
            "a grammar whose rule is missing",
            "--lark",
            "start: a".to_owned(),
            &["Lark grammar", "a"],
        ),
        case(
            "a grammar of 20,000 groups inside each other",
            "--lark",
            deep,
            &["Lark grammar", "nested"],
        ),
        case(
            "a grammar of 9,000 rules",
            "--lark",
            rules,
            &["generated tokens"],
        )
        .succeeds(),
        case(
            "a grammar that is itself",
            "--lark",
            "start: start".to_owned(),
            &["Lark grammar"],
        ),
        case(
            "a grammar with every reading",
            "--lark",
            "start: s\ns: s s s | s s | \"a\" | ".to_owned(),
            &["generated tokens"],
        )
        .succeeds(),
    ]
}
