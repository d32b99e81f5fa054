//! Tokenizers that break the code that runs them, or ask it for more than there is.

use std::path::Path;

use serde_json::{Value, json};

use super::case::Case;
use super::world::{model, set, tokenizer, write};

const FILE: &str = "tokenizer.json";

pub(crate) fn cases() -> Vec<Case> {
    [texts(), pipelines(), vocabularies()].concat()
}

fn with(name: &str, text: impl Into<Vec<u8>>, words: &[&str]) -> Case {
    let text = text.into();
    Case::generate(
        name,
        &["--prompt", "aaaa aaaa"],
        words,
        move |here: &Path| {
            model(here);
            write(&here.join("model").join(FILE), &text);
        },
    )
}

/// The sound tokenizer with one value changed.
fn changed(name: &str, pointer: &str, value: Value, words: &[&str]) -> Case {
    let mut file = tokenizer();
    set(&mut file, pointer, value);
    with(name, file.to_string(), words)
}

fn texts() -> Vec<Case> {
    let nested = format!(
        r#"{{"normalizer": {}null{}}}"#,
        r#"{"type": "Sequence", "normalizers": ["#.repeat(5000),
        "]}".repeat(5000)
    );
    let table: Vec<(&str, Vec<u8>)> = vec![
        ("a tokenizer of nothing", Vec::new()),
        ("a tokenizer of half a file", b"{\"version\": ".to_vec()),
        ("a tokenizer without a model", b"{}".to_vec()),
        ("a tokenizer that is a list", b"[]".to_vec()),
        (
            "a tokenizer of another version",
            br#"{"version": "9.0", "model": {}}"#.to_vec(),
        ),
        (
            "a tokenizer of bytes that are not UTF-8",
            b"{\"version\": \"\xFF\xFE\"}".to_vec(),
        ),
        (
            "a tokenizer with a remark that is not UTF-8",
            [
                b"{\"remark\": \"\xFF\", ",
                &tokenizer().to_string().as_bytes()[1..],
            ]
            .concat(),
        ),
        (
            "a tokenizer with half a surrogate pair",
            br#"{"version": "\ud800"}"#.to_vec(),
        ),
        ("a tokenizer of brackets", "[".repeat(1 << 20).into()),
        ("a tokenizer of steps in steps", nested.into()),
        (
            "a tokenizer with its model twice",
            br#"{"normalizer": null, "normalizer": null}"#.to_vec(),
        ),
    ];
    table
        .into_iter()
        .map(|(name, text)| with(name, text, &[FILE, "not a usable tokenizer"]))
        .collect()
}

/// What is done to a text.
fn pipelines() -> Vec<Case> {
    let sequence = |steps: Vec<Value>| json!({"type": "Sequence", "normalizers": steps});
    let double = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"});
    let split = |pattern: &str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
    let template = |pieces: Value| json!({"type": "TemplateProcessing", "single": pieces, "pair": [], "special_tokens": {}});
    let refused: &[&str] = &[FILE, "not a usable tokenizer"];
    let section = |name: &str, words: &'static str| vec![FILE, name_of(name), words];
    vec![
        changed(
            "a text that doubles 40 times",
            "/normalizer",
            sequence(vec![double.clone(); 40]),
            &section("normalizer", "times longer"),
        ),
        changed(
            "a text that grows by a megabyte each letter",
            "/normalizer",
            json!({"type": "Replace", "pattern": {"String": "a"}, "content": "b".repeat(1 << 20)}),
            &section("normalizer", "times longer"),
        ),
        changed(
            "a text that doubles as it is decoded",
            "/decoder",
            json!({"type": "Sequence", "decoders": vec![double; 40]}),
            &section("decoder", "times longer"),
        ),
        changed(
            "bytes of bytes of bytes",
            "/normalizer",
            sequence(vec![json!({"type": "ByteLevel"}); 40]),
            &section("normalizer", "times longer"),
        ),
        changed(
            "a thousand steps",
            "/normalizer",
            sequence(vec![json!({"type": "NFC"}); 1000]),
            &section("normalizer", "steps"),
        ),
        changed(
            "a table that is no table",
            "/normalizer",
            json!({"type": "Precompiled", "precompiled_charsmap": "!!"}),
            &section("normalizer", "charsmap"),
        ),
        changed(
            "a table shorter than it says",
            "/normalizer",
            json!({"type": "Precompiled", "precompiled_charsmap": "/////wAA"}),
            &section("normalizer", "shorter than it says"),
        ),
        changed(
            "a table of nothing",
            "/normalizer",
            json!({"type": "Precompiled", "precompiled_charsmap": ""}),
            refused,
        ),
        changed(
            "a table of zeros",
            "/normalizer",
            json!({"type": "Precompiled", "precompiled_charsmap": "AAAAAAAAAAAAAA=="}),
            &[FILE, "it broke down"],
        ),
        changed(
            "a table of ones",
            "/normalizer",
            json!({"type": "Precompiled", "precompiled_charsmap": "BAAAAP////8="}),
            &[FILE, "it broke down"],
        ),
        changed(
            "a pattern that does not end",
            "/pre_tokenizer",
            split("(a"),
            refused,
        ),
        changed(
            "a pattern of a million",
            "/pre_tokenizer",
            split("((a{1000}){1000})"),
            &section("pre_tokenizer", "1000000"),
        ),
        changed(
            "a pattern of 100 KB",
            "/pre_tokenizer",
            split(&"a|".repeat(50_000)),
            &section("pre_tokenizer", "100000 bytes"),
        ),
        changed(
            "a pattern of groups in groups",
            "/pre_tokenizer",
            split(&format!("{}a{}", "(".repeat(5000), ")".repeat(5000))),
            refused,
        ),
        changed(
            "a pattern that looks around 10,000 times",
            "/pre_tokenizer",
            split("(?:(?=a)a){10000}"),
            &[],
        )
        .succeeds(),
        changed(
            "a pattern that backtracks",
            "/pre_tokenizer",
            split(r"(?=(a+)+\1b)a"),
            &[],
        )
        .succeeds(),
        changed(
            "a split that is unknown",
            "/pre_tokenizer",
            json!({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Explode", "invert": false}),
            refused,
        ),
        changed(
            "a step that is unknown",
            "/normalizer",
            json!({"type": "Mystery"}),
            refused,
        ),
        changed(
            "a decoder that is unknown",
            "/decoder",
            json!({"type": "Mystery"}),
            refused,
        ),
        changed(
            "a template with an unknown token",
            "/post_processor",
            template(json!([{"SpecialToken": {"id": "[X]", "type_id": 0}}])),
            &[FILE],
        ),
        changed(
            "a template that is no template",
            "/post_processor",
            template(json!("$A $B $C:99999999999")),
            &[FILE],
        ),
    ]
}

fn name_of(section: &str) -> &'static str {
    match section {
        "normalizer" => "normalizer",
        "decoder" => "decoder",
        _ => "pre_tokenizer",
    }
}

/// Words and their numbers.
fn vocabularies() -> Vec<Case> {
    let words =
        |model: Value| json!({"version": "1.0", "added_tokens": [], "model": model}).to_string();
    let refused: &[&str] = &[FILE, "not a usable tokenizer"];
    let unigram = |unk: i64, vocab: Value| {
        words(json!({"type": "Unigram", "unk_id": unk, "vocab": vocab, "byte_fallback": false}))
    };
    vec![
        changed("a word of number -1", "/model/vocab/a", json!(-1), refused),
        changed(
            "a word of number 2^40",
            "/model/vocab/a",
            json!(1u64 << 40),
            refused,
        ),
        changed(
            "a word of number 4 billion",
            "/model/vocab/a",
            json!(u32::MAX),
            &["prompt 0", "4294967295", "331"],
        ),
        changed(
            "a word beyond the model",
            "/model/vocab/a",
            json!(331),
            &["prompt 0", "331"],
        ),
        changed(
            "a word whose number is a word",
            "/model/vocab/a",
            json!("a"),
            refused,
        ),
        changed(
            "a merge of unknown words",
            "/model/merges",
            json!([["xx", "yy"]]),
            refused,
        ),
        changed(
            "a merge of three words",
            "/model/merges",
            json!(["a b c"]),
            refused,
        ),
        changed(
            "merges that are numbers",
            "/model/merges",
            json!([1, 2]),
            refused,
        ),
        changed(
            "an unknown word that is unknown",
            "/model/unk_token",
            json!("[UNK]"),
            &[],
        ).succeeds(),
        changed("a dropout of 7", "/model/dropout", json!(7.0), refused),
        changed(
            "an added token of number 4 billion",
            "/added_tokens/0/id",
            json!(u32::MAX),
            &[],
        ).succeeds(),
        changed(
            "an added token without text",
            "/added_tokens/0/content",
            json!(""),
            &[],
        ).succeeds(),
        changed(
            "a model that is unknown",
            "/model/type",
            json!("Oracle"),
            refused,
        ),
        with(
            "no words",
            words(json!({"type": "WordLevel", "vocab": {}, "unk_token": "?"})),
            &["prompt 0"],
        ),
        with(
            "no words and none unknown",
            words(json!({"type": "BPE", "vocab": {}, "merges": []})),
            &["prompt 0", "empty"],
        ),
        with("unigrams without words", unigram(0, json!([])), refused),
        with(
            "unigrams without the unknown one",
            unigram(7, json!([["a", -1.0]])),
            refused,
        ),
        with(
            "unigrams of infinite score",
            unigram(0, json!([["a", -1e308], ["aa", -1e308]])),
            &[],
        ).succeeds(),
        with(
            "unigrams of empty words",
            unigram(0, json!([["", 0.0], ["a", -1.0]])),
            &[],
        ).succeeds(),
        with(
            "word pieces of any length",
            words(
                json!({"type": "WordPiece", "vocab": {"a": 0, "[U]": 1}, "unk_token": "[U]", "continuing_subword_prefix": "##", "max_input_chars_per_word": u64::MAX}),
            ),
            &[],
        ).succeeds(),
    ]
}
