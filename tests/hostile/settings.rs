//! `config.json` and `generation_config.json` of a checkpoint.

use std::path::Path;

use serde_json::{Value, json};

use super::case::Case;
use super::world::{checkpoint, edit, write};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = [texts(), cuda(), options(), endings()].concat();
    cases.extend(values());
    cases
}

/// Ids that end an answer: few models have more than three.
fn endings() -> Vec<Case> {
    let listed = |file: &'static str, count: usize| {
        let name = format!("{count} eos_token_id in {file}");
        let words = [file, "eos_token_id", "at most 256 ids"];
        Case::build(name, &[], &words, move |here| {
            checkpoint(here);
            edit(&here.join("in/config.json"), |config| {
                config["vocab_size"] = json!(2_000_000);
            });
            // What it says comes before what `config.json` says.
            write(&here.join("in/generation_config.json"), "{}");
            edit(&here.join("in").join(file), |settings| {
                settings["eos_token_id"] = (0..count).collect();
            });
        })
    };
    vec![
        listed("config.json", 257),
        listed("config.json", 500_000),
        listed("generation_config.json", 85_000),
    ]
}

/// Files that are not an object of settings.
fn texts() -> Vec<Case> {
    let deep = format!("{{\"a\": {}", "[".repeat(100_000));
    let nested = format!("{{\"a\": {}1{}}}", "{\"a\":".repeat(500), "}".repeat(500));
    let table: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty", Vec::new(), "is not valid JSON"),
        ("not JSON", b"{".to_vec(), "is not valid JSON"),
        ("a list", b"[]".to_vec(), "must hold a JSON object"),
        ("null", b"null".to_vec(), "must hold a JSON object"),
        ("a number", b"5".to_vec(), "must hold a JSON object"),
        (
            "with a byte order mark",
            "\u{FEFF}{}".into(),
            "is not valid JSON",
        ),
        (
            "of bytes that are not UTF-8",
            b"{\"a\": \"\xFF\"}".to_vec(),
            "is not UTF-8",
        ),
        (
            "with half a surrogate pair",
            br#"{"a": "\udfff"}"#.to_vec(),
            "surrogate",
        ),
        (
            "with NaN",
            br#"{"rms_norm_eps": NaN}"#.to_vec(),
            "is not valid JSON",
        ),
        (
            "with Infinity",
            br#"{"rope_theta": Infinity}"#.to_vec(),
            "is not valid JSON",
        ),
        (
            "with 1e999",
            br#"{"rope_theta": 1e999}"#.to_vec(),
            "out of range",
        ),
        (
            "with a comma too many",
            br#"{"a": 1,}"#.to_vec(),
            "is not valid JSON",
        ),
        ("with text after it", b"{} {}".to_vec(), "is not valid JSON"),
        (
            "with a key twice",
            br#"{"vocab_size": 1, "vocab_size": 2}"#.to_vec(),
            "\"vocab_size\" appears twice",
        ),
        (
            "with an inner key twice",
            br#"{"text_config": {"a": 1, "a": 1}}"#.to_vec(),
            "\"a\" appears twice",
        ),
        ("of brackets", deep.into(), "recursion limit"),
        ("of objects in objects", nested.into(), "recursion limit"),
        ("of zeros", vec![0; 100], "is not valid JSON"),
    ];
    let mut cases = Vec::new();
    for file in ["config.json", "generation_config.json"] {
        for (name, bytes, words) in &table {
            let bytes = bytes.clone();
            cases.push(Case::build(
                format!("{file} {name}"),
                &[],
                &[file, words],
                move |here| {
                    checkpoint(here);
                    write(&here.join("in").join(file), &bytes);
                },
            ));
        }
    }
    cases.push(Case::build(
        "no config.json",
        &[],
        &["config.json", "cannot be read"],
        |here| {
            checkpoint(here);
            std::fs::remove_file(here.join("in/config.json")).unwrap();
        },
    ));
    cases
}

fn config(key: &'static str, value: Value) -> impl Fn(&Path) + Send + Sync + 'static {
    move |here| {
        checkpoint(here);
        edit(&here.join("in/config.json"), |config| {
            config[key] = value.clone()
        });
    }
}

/// Values that a setting cannot have. Each message names the file and the key.
fn values() -> Vec<Case> {
    let huge = json!(u64::MAX);
    let table: Vec<(&'static str, Vec<Value>)> = vec![
        (
            "vocab_size",
            vec![
                json!(0),
                json!(-1),
                json!(1.5),
                json!("331"),
                json!(true),
                json!(1e30),
                huge.clone(),
                json!((1u64 << 31) + 1),
                json!([331]),
                Value::Null,
            ],
        ),
        (
            "hidden_size",
            vec![
                json!(0),
                json!(-96),
                json!(96.5),
                json!(1u64 << 40),
                json!({}),
            ],
        ),
        (
            "num_hidden_layers",
            vec![
                json!(0),
                json!(-3),
                json!(1025),
                json!(1_000_000_000),
                json!("3"),
            ],
        ),
        (
            "num_attention_heads",
            vec![json!(0), json!(-6), json!(5000), huge.clone()],
        ),
        (
            "num_key_value_heads",
            vec![json!(0), json!(4), json!(-2), json!(2.5)],
        ),
        (
            "head_dim",
            vec![json!(0), json!(1_000_000), json!(-16), json!("16")],
        ),
        ("intermediate_size", vec![json!(0), json!(-1), huge]),
        (
            "max_position_embeddings",
            vec![json!(0), json!(-1), json!(1u64 << 40), json!(1.25)],
        ),
        (
            "rms_norm_eps",
            vec![
                json!(0),
                json!(-1e-6),
                json!(1e30),
                json!(1.5),
                json!(1e-60),
                json!("1e-6"),
                json!([]),
            ],
        ),
        ("tie_word_embeddings", vec![json!("yes"), json!(1)]),
        ("hidden_act", vec![json!("gelu"), json!(5)]),
        ("attention_bias", vec![json!(true), json!("on")]),
        (
            "quantization_config",
            vec![json!({"bits": 4}), json!("gptq")],
        ),
        ("rope_parameters", vec![json!([]), json!("default")]),
        (
            "model_type",
            vec![
                Value::Null,
                json!(5),
                json!("gpt_nine"),
                json!("a".repeat(100_000)),
            ],
        ),
        (
            "eos_token_id",
            vec![
                json!(-2),
                json!(331),
                json!("2"),
                json!([1, 331]),
                json!(1.5),
            ],
        ),
        (
            "layer_types",
            vec![
                json!("full_attention"),
                json!(["full_attention"]),
                json!(["a", "b", "c"]),
                json!([1, 2, 3]),
            ],
        ),
    ];
    let mut cases = Vec::new();
    for (key, values) in table {
        for value in values {
            let shown: String = value.to_string().chars().take(40).collect();
            let make = move |here: &Path| {
                config(key, value.clone())(here);
                // It would answer for the roles that it fills.
                write(&here.join("in/generation_config.json"), "{}");
            };
            cases.push(Case::build(
                format!("{key} is {shown}"),
                &[],
                &["config.json", key],
                make,
            ));
        }
    }
    for (name, rope, words) in [
        ("a theta of 0", json!({"rope_theta": 0}), "rope_theta"),
        ("a negative theta", json!({"rope_theta": -1}), "rope_theta"),
        (
            "a theta that is a word",
            json!({"rope_theta": "many"}),
            "rope_theta",
        ),
        (
            "an unknown kind of positions",
            json!({"rope_type": "spiral"}),
            "rope_type",
        ),
        (
            "a kind of positions that is a number",
            json!({"rope_type": 3}),
            "rope_type",
        ),
        (
            "positions without their factor",
            json!({"rope_type": "linear"}),
            "factor",
        ),
        (
            "positions with a factor of 0",
            json!({"rope_type": "linear", "factor": 0}),
            "factor",
        ),
    ] {
        cases.push(Case::build(
            name,
            &[],
            &["config.json", words],
            config("rope_parameters", rope),
        ));
    }
    for (key, value) in [
        ("eos_token_id", json!(-5)),
        ("bos_token_id", json!(331)),
        ("pad_token_id", json!("x")),
    ] {
        let make = move |here: &Path| {
            checkpoint(here);
            edit(&here.join("in/generation_config.json"), |file| {
                file[key] = value.clone()
            });
        };
        let name = format!("{key} of generation_config.json");
        cases.push(Case::build(
            name,
            &[],
            &["generation_config.json", key],
            make,
        ));
    }
    cases
}

/// Tables of positions are made in memory.
fn cuda() -> Vec<Case> {
    let longest = config("max_position_embeddings", json!(1u64 << 31));
    let cuda = ["--target", "cuda", "--max-sequence", "2147483648"];
    vec![
        Case::build(
            "tables of 2^31 positions",
            &cuda,
            &["max_position_embeddings", "--max-sequence"],
            longest,
        ),
        Case::build(
            "a shorter sequence needs shorter tables",
            &["--target", "cuda", "--max-sequence", "100"],
            &["to/out"],
            config("max_position_embeddings", json!(1u64 << 31)),
        )
        .succeeds(),
        Case::build(
            "2^31 positions without tables",
            &[],
            &["to/out"],
            config("max_position_embeddings", json!(1u64 << 31)),
        )
        .succeeds(),
    ]
}

fn options() -> Vec<Case> {
    [
        (&["--max-sequence", "0"][..], "--max-sequence"),
        (&["--max-sequence", "-1"], "--max-sequence"),
        (&["--max-sequence", "4294967296"], "--max-sequence"),
        (&["--max-sequence", "2049"], "--max-sequence"),
        (&["--checkpoints", "update:9"], "--checkpoints"),
        (&["--checkpoints", "update:-1"], "--checkpoints"),
        (&["--dtype", "f8"], "--dtype"),
        (&["--target", "tpu"], "--target"),
        (&["--spelling", "genai-0.18"], "--spelling"),
    ]
    .into_iter()
    .map(|(more, word)| Case::build(more.join(" "), more, &[word], checkpoint))
    .collect()
}
