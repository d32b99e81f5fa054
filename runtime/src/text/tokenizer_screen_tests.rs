use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::tokenizer_screen::{Growth, screen};

fn refusal(file: &Value) -> Option<String> {
    screen(file.to_string().as_bytes()).err()
}

fn double() -> Value {
    json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})
}

#[test]
fn usual_pipelines_pass() {
    let spaces = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let split = json!({"type": "Split", "pattern": {"Regex": r"\p{N}{1,3}| ?\p{L}+"},
        "behavior": "Isolated", "invert": false});
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false});
    let template = json!({"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}});
    let back = json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]});
    for (file, encoded, decoded) in [
        (
            json!({"normalizer": {"type": "Sequence", "normalizers":
            [{"type": "Prepend", "prepend": "▁"}, spaces]}, "model": {"vocab": {}, "unk_token": "<unk>"},
            "decoder": back, "post_processor": template}),
            12,
            1,
        ),
        (
            json!({"normalizer": {"type": "NFC"}, "decoder": bytes, "post_processor": bytes,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, bytes]}}),
            6,
            2,
        ),
        (
            json!({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKD"},
            {"type": "StripAccents"}, {"type": "Lowercase"}, table(33)]},
            "pre_tokenizer": null}),
            726,
            1,
        ),
        (json!({"normalizer": null}), 1, 1),
    ] {
        let growth = Growth { encoded, decoded };
        assert_eq!(screen(file.to_string().as_bytes()), Ok(growth), "{file}");
    }
}

fn table(text: usize) -> Value {
    let table = [vec![0; 4], vec![b'a'; text], vec![0]].concat();
    json!({"type": "Precompiled", "precompiled_charsmap": BASE64_STANDARD.encode(table)})
}

fn chain(step: Value, count: usize) -> Value {
    json!({"type": "Sequence", "normalizers": vec![step; count]})
}

#[test]
fn what_would_take_the_memory_of_the_machine_is_refused() {
    let bytes = json!({"type": "ByteLevel"});
    let regex = |pattern: String| json!({"type": "Split", "pattern": {"Regex": pattern}});
    let prepend = json!({"type": "Prepend", "prepend": "a".repeat(2000)});
    let decoders = json!({"type": "Sequence", "decoders": vec![double(); 5]});
    let by_pattern = json!({"type": "Replace", "pattern": {"Regex": "a"}, "content": ""});
    for (section, step, words) in [
        ("normalizer", chain(double(), 11), "times longer"),
        ("normalizer", chain(bytes, 20), "times longer"),
        (
            "normalizer",
            chain(json!({"type": "NFKC"}), 3),
            "times longer",
        ),
        ("normalizer", prepend, "times longer"),
        ("decoder", decoders, "times longer"),
        ("decoder", by_pattern, "regular expression"),
        ("normalizer", chain(json!({"type": "Nmt"}), 65), "steps"),
        ("normalizer", table(100_000), "100000 bytes"),
        (
            "pre_tokenizer",
            regex("a{1000}{1000}".to_owned()),
            "1000000",
        ),
        ("pre_tokenizer", regex("a".repeat(20_000)), "20000 bytes"),
        (
            "model",
            json!({"unk_token": "a".repeat(257)}),
            "unk_token: a text of 257 bytes",
        ),
    ] {
        let message = refusal(&json!({section: step})).unwrap_or_default();
        assert!(
            message.starts_with(section) && message.contains(words),
            "{words}: {message}"
        );
    }
    assert_eq!(refusal(&json!({"normalizer": chain(double(), 10)})), None);
    assert_eq!(refusal(&json!({"normalizer": table(30)})), None);
}

/// The tokenizer's code takes such steps by their keys.
#[test]
fn steps_whose_type_is_not_known_are_refused() {
    let untyped = json!({"pattern": {"String": "a"}, "content": "aa"});
    let typed = |kind: &str| {
        let mut step = untyped.clone();
        step["type"] = json!(kind);
        step
    };
    for (section, step) in [
        ("normalizer", untyped.clone()),
        ("normalizer", typed("replace")),
        ("normalizer", typed("Bert")),
        ("normalizer", chain(untyped.clone(), 2)),
        ("normalizer", json!({"normalizers": [double()]})),
        ("decoder", untyped.clone()),
        ("decoder", json!({"decoders": [double()]})),
        ("pre_tokenizer", json!({"type": "Replace"})),
        ("post_processor", json!({"single": []})),
    ] {
        let message = refusal(&json!({section: step})).unwrap_or_default();
        assert!(
            message.starts_with(section) && message.contains("a step of type "),
            "{step}: {message}"
        );
    }
    for step in [json!(["Replace"]), json!("NFC"), chain(json!(7), 1)] {
        let message = refusal(&json!({"normalizer": step})).unwrap_or_default();
        assert!(message.contains("expected an object"), "{step}: {message}");
    }
}

/// These types are not known to the tokenizer's code as such: it goes by the keys.
#[test]
fn what_a_step_is_called_hides_nothing() {
    let replace = |kind: &str| {
        let mut step = double();
        step["type"] = json!(kind);
        step
    };
    let growth = |section: &str, step: Value| {
        let file = json!({section: step}).to_string();
        screen(file.as_bytes()).map(|growth| growth.encoded.max(growth.decoded))
    };
    assert_eq!(growth("normalizer", replace("Nmt")), Ok(2));
    let inside = json!({"type": "BertNormalizer", "normalizers": [double(), double()]});
    assert_eq!(growth("normalizer", inside), Ok(24));
    let spaces = json!({"type": "CharDelimiterSplit", "replacement": "▁"});
    assert_eq!(growth("pre_tokenizer", spaces), Ok(4));
}

#[test]
fn templates_multiply_and_add() {
    let text = json!({"Sequence": {"id": "A", "type_id": 0}});
    let token = json!({"SpecialToken": {"id": "x", "type_id": 0}});
    let template = |kind: &str, pieces: Vec<Value>, ids: usize| {
        json!({"post_processor": {"type": kind, "single": pieces, "pair": [],
            "special_tokens": {"x": {"id": "x", "ids": vec![1; ids], "tokens": []}}}})
    };
    let grown = |file: Value| screen(file.to_string().as_bytes()).map(|growth| growth.encoded);
    const KIND: &str = "TemplateProcessing";
    assert_eq!(grown(template(KIND, vec![text.clone(); 3], 1)), Ok(3));
    assert_eq!(
        grown(template(KIND, vec![token.clone(), text.clone()], 9)),
        Ok(1)
    );
    for (file, words) in [
        (template(KIND, vec![text.clone(); 2000], 1), "times longer"),
        (template("ByteLevel", vec![text; 2000], 1), "times longer"),
        (
            template(KIND, vec![token.clone(); 2], 600),
            "more than 1024 tokens",
        ),
        (
            template(KIND, vec![token; 1025], 0),
            "more than 1024 tokens",
        ),
        (
            template(KIND, vec![json!({"SpecialToken": {"id": "y"}})], 1),
            "\"y\" is not among them",
        ),
        (
            template(KIND, vec![json!({"SpecialToken": ["x", 0]})], 1),
            "no SpecialToken",
        ),
    ] {
        let message = grown(file).unwrap_err();
        assert!(
            message.starts_with("post_processor: ") && message.contains(words),
            "{message}"
        );
    }
}
