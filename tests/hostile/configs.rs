//! `genai_config.json`: every refusal of the format, through the tool, and what else the file can ask for.

use std::fs;
use std::path::Path;

use pawl::ErrorCode;
use serde_json::{Value, json};

use super::case::Case;
use super::world::{edit, model, set, write};

const FILE: &str = "genai_config.json";

pub(crate) fn cases() -> Vec<Case> {
    let files = [rejected(), texts()].concat().into_iter();
    let files = files.map(
        |case| match case.words.iter().any(|word| word.contains("unreadable")) {
            true => case.coded(ErrorCode::FileUnreadable),
            false => case.coded(ErrorCode::ConfigInvalid),
        },
    );
    files.chain(values()).collect()
}

/// The rejected files of the format's own tests: at least one for every code.
fn rejected() -> Vec<Case> {
    let folder = pawl_tests::workspace().join("genai_config_schema/tests");
    let json = |path: &Path| -> Value { serde_json::from_slice(&fs::read(path).unwrap()).unwrap() };
    let mut files: Vec<_> = fs::read_dir(folder.join("rejected")).unwrap().collect();
    files.sort_by_key(|entry| entry.as_ref().unwrap().file_name());
    let case = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.unwrap().path();
        let case = json(&path);
        let text = match case["text"].as_str() {
            Some(text) => text.to_owned(),
            None => {
                let base = format!("fixtures/{}.json", case["base"].as_str().unwrap());
                let mut value = json(&folder.join(base));
                for (pointer, new) in case["set"].as_object().into_iter().flatten() {
                    put(&mut value, pointer, new.clone());
                }
                for pointer in case["remove"].as_array().into_iter().flatten() {
                    take(&mut value, pointer.as_str().unwrap());
                }
                value.to_string()
            }
        };
        let mut words = vec![FILE.to_owned()];
        for error in case["expect"].as_array().unwrap() {
            let at = error["path"].as_str().unwrap();
            let code = error["code"].as_str().unwrap();
            words.push(format!("[{code}]"));
            words.push(if at.is_empty() { "(root)" } else { at }.to_owned());
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let name = path.file_stem().unwrap().to_str().unwrap();
        Case::inspect(format!("rejected {name}"), &words, move |here| {
            fs::create_dir(here.join("model")).unwrap();
            write(&here.join("model").join(FILE), &text);
        })
    };
    files.into_iter().map(case).collect()
}

/// Sets a value; one place beyond the end of a list adds to it.
fn put(value: &mut Value, pointer: &str, new: Value) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match value.pointer_mut(parent).unwrap() {
        Value::Array(list) if key.parse() == Ok(list.len()) => list.push(new),
        _ => set(value, pointer, new),
    }
}

fn take(value: &mut Value, pointer: &str) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match value.pointer_mut(parent).unwrap() {
        Value::Array(list) => drop(list.remove(key.parse().unwrap())),
        object => drop(object.as_object_mut().unwrap().remove(key)),
    }
}

fn texts() -> Vec<Case> {
    let table: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty", Vec::new(), "not_json"),
        (
            "bytes that are not UTF-8",
            b"{\"model\": \"\xFF\"}".to_vec(),
            "unreadable",
        ),
        (
            "half a surrogate pair",
            br#"{"model": "\ud800"}"#.to_vec(),
            "not_json",
        ),
        ("NaN", br#"{"model": NaN}"#.to_vec(), "not_json"),
        ("1e999", br#"{"model": 1e999}"#.to_vec(), "not_finite"),
        ("brackets", "[".repeat(500_000).into(), "too_deep"),
        (
            "a million errors",
            format!("{{{}\"a\": 1}}", "\"a\": 1,".repeat(100_000)).into(),
            "duplicate_key",
        ),
        ("a list", b"[]".to_vec(), "wrong_type"),
    ];
    let mut cases: Vec<Case> = table
        .into_iter()
        .map(|(name, bytes, word)| {
            Case::inspect(format!("{FILE} of {name}"), &[FILE, word], move |here| {
                model(here);
                write(&here.join("model").join(FILE), &bytes);
            })
        })
        .collect();
    cases.push(
        Case::inspect("an empty model folder", &[FILE], |here| {
            fs::create_dir(here.join("model")).unwrap();
        })
        .coded(ErrorCode::FileUnreadable),
    );
    cases.push(
        Case::inspect("no model folder", &["{here}/model", FILE], |_| {})
            .coded(ErrorCode::FileUnreadable),
    );
    cases.push(
        Case::inspect("a model that is a file", &["{here}/model"], |here| {
            write(&here.join("model"), "x");
        })
        .coded(ErrorCode::FileUnreadable),
    );
    cases
}

/// A sound file with one value that it cannot have, or that this machine cannot serve.
fn values() -> Vec<Case> {
    let batching = "/engine/dynamic_batching";
    let options = "/model/decoder/session_options";
    let case = |name: &str, pointer: &str, value: Value, words: &[&str]| {
        let pointer = pointer.to_owned();
        Case::load(name, words, move |here| {
            model(here);
            edit(&here.join("model").join(FILE), |config| {
                set(config, &pointer, value.clone());
            });
        })
    };
    let file = |name: &str| format!("/model/{name}/filename");
    let provider = |name: &str| json!({"provider_options": [{name: {}}]});
    vec![
        case(
            "a batch of 4 billion",
            &format!("{batching}/max_batch_size"),
            json!(u32::MAX),
            &["fixed state", "total"],
        )
        .coded(ErrorCode::OutOfMemory),
        case(
            "4 billion blocks",
            &format!("{batching}/num_blocks"),
            json!(u32::MAX),
            &["key/value cache", "total"],
        ),
        case(
            "no blocks",
            &format!("{batching}/num_blocks"),
            json!(0),
            &[FILE, "num_blocks"],
        ),
        case(
            "another block size",
            &format!("{batching}/block_size"),
            json!(u32::MAX),
            &["block"],
        ),
        case(
            "a graph that is not there",
            &file("decoder"),
            json!("absent.onnx"),
            &["absent.onnx"],
        ),
        case(
            "a graph that is a folder",
            &file("decoder"),
            json!("."),
            &[FILE, "unsafe_path"],
        ),
        case(
            "a graph in another folder",
            &file("decoder"),
            json!("../model/model.onnx"),
            &["unsafe_path", "filename"],
        ),
        case(
            "an absolute graph",
            &file("mtp"),
            json!("/etc/passwd"),
            &["unsafe_path", "model.mtp.filename"],
        ),
        case(
            "a graph that is text",
            &file("decoder"),
            json!("genai_config.json"),
            &["genai_config.json", "ONNX"],
        ),
        case(
            "a head that is not there",
            &file("mtp"),
            json!("absent.onnx"),
            &["absent.onnx"],
        ),
        case(
            "a tokenizer elsewhere",
            "/model/tokenizer_dir",
            json!("../.."),
            &["unsafe_path", "tokenizer_dir"],
        ),
        case(
            "100,000 threads",
            options,
            json!({"intra_op_num_threads": 100_000}),
            &["intra_op_num_threads", "100000"],
        )
        .coded(ErrorCode::OptionInvalid),
        case(
            "operators of the model's own",
            options,
            json!({"custom_ops_library": "evil.so"}),
            &["custom_ops_library"],
        )
        .coded(ErrorCode::Unsupported),
        case(
            "weights from anywhere",
            options,
            json!({"session.model_external_initializers_file_folder_path": "/etc"}),
            &["session.model_external_initializers_file_folder_path"],
        ),
        case(
            "a provider that is not there",
            options,
            provider("qnn"),
            &["qnn"],
        )
        .coded(ErrorCode::ProviderUnavailable),
        case(
            "a provider that is not built",
            options,
            provider("cuda"),
            &["CUDA"],
        ),
        case(
            "another vocabulary",
            "/model/vocab_size",
            json!(332),
            &["P3", "logits"],
        ),
        case(
            "another width",
            "/model/decoder/hidden_size",
            json!(97),
            &["P3", "hidden_states"],
        ),
        case(
            "other heads",
            "/model/decoder/num_key_value_heads",
            json!(3),
            &["M3", "past_key_values"],
        ),
        case(
            "other elements of a head",
            "/model/decoder/head_size",
            json!(33),
            &["M3", "past_key_values"],
        ),
        case(
            "a token beyond the vocabulary",
            "/model/eos_token_id",
            json!([331]),
            &[FILE, "eos_token_id"],
        ),
        case(
            "a context of 2^31",
            "/model/context_length",
            json!(1u64 << 31),
            &["key/value cache", "total"],
        )
        .succeeds(),
    ]
}
