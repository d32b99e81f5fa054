//! The `pawl` binary as a caller meets it: output, exit codes, messages.

#![allow(clippy::unwrap_used, reason = "a case stops where its set-up fails")]

mod common;

use common::{assert_refused, model, text};
use std::process::{Command, Output};

fn pawl(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pawl"))
        .args(args)
        .env("PAWL_COST_FOLDER", "off")
        .output()
        .unwrap()
}

fn generate(args: &[&str]) -> Output {
    let model = model().to_str().unwrap();
    pawl(&[&["generate", "--model", model], args].concat())
}

#[test]
fn json_has_one_object_per_prompt() {
    let output = generate(&[
        "--ids",
        "1,2,3",
        "--ids",
        "9",
        "--max-new-tokens",
        "5",
        "--ignore-eos",
        "--json",
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    let objects: Vec<serde_json::Value> = printed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(objects.len(), 2);
    for (object, prompt_tokens) in objects.iter().zip([3, 1]) {
        assert_eq!(object["tokens"].as_array().unwrap().len(), 5);
        assert_eq!(object["prompt_tokens"], prompt_tokens);
        assert_eq!(object["finish_reason"], "max_new_tokens");
        assert!(!object["text"].as_str().unwrap().is_empty());
        for key in [
            "steps",
            "tokens_per_step",
            "prefill_seconds",
            "decode_seconds",
            "decode_tokens_per_second",
        ] {
            assert!(object["stats"][key].is_number(), "{key} in {object}");
        }
    }
}

#[test]
fn text_and_statistics_are_printed_and_repeat() {
    let args = ["--prompt", "def main():\n", "--max-new-tokens", "12"];
    let (first, second) = (generate(&args), generate(&args));
    let printed = text(&first.stdout);
    assert!(
        first.status.success() && printed.contains("generated tokens"),
        "{printed}"
    );
    let body = |output: &Output| text(&output.stdout).split("\n[").next().unwrap().to_owned();
    assert_eq!(body(&first), body(&second));
}

#[test]
fn a_seed_is_told_where_one_is_used() {
    let one = ["--ids", "5", "--max-new-tokens", "1", "--json"];
    for (more, told) in [
        (&[][..], None),
        (&["--temperature", "0"], None),
        (&["--temperature", "0.5", "--seed", "7"], Some(7)),
    ] {
        let output = generate(&[&one[..], more].concat());
        let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(object["seed"].as_u64(), told, "{more:?}");
    }
}

#[test]
fn a_seed_repeats_a_sampled_run() {
    let args = [
        "--ids",
        "5,6",
        "--temperature",
        "1.2",
        "--seed",
        "3",
        "--max-new-tokens",
        "20",
        "--json",
    ];
    let tokens = |output: Output| -> serde_json::Value {
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["tokens"].clone()
    };
    let greedy = tokens(generate(&[
        "--ids",
        "5,6",
        "--max-new-tokens",
        "20",
        "--json",
    ]));
    assert_eq!(tokens(generate(&args)), tokens(generate(&args)));
    assert_ne!(tokens(generate(&args)), greedy);
}

#[test]
fn chat_uses_the_models_template() {
    let output = generate(&[
        "--chat",
        "--prompt",
        "hi",
        "--max-new-tokens",
        "3",
        "--json",
    ]);
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let plain = generate(&["--prompt", "hi", "--max-new-tokens", "3", "--json"]);
    let plain: serde_json::Value = serde_json::from_slice(&plain.stdout).unwrap();
    assert!(object["prompt_tokens"].as_u64() > plain["prompt_tokens"].as_u64());
    assert_refused(&generate(&["--chat", "--ids", "1"]), &["--chat", "--ids"]);
}

#[test]
fn logits_are_written_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("logits.safetensors");
    let (model, path) = (model().to_str().unwrap(), out.to_str().unwrap());
    let output = pawl(&["logits", "--model", model, "--ids", "1,2,3", "--out", path]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let bytes = std::fs::read(&out).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.tensor("logits").unwrap().shape(), [3, 2048]);
    assert_eq!(file.tensor("mtp.logits").unwrap().shape(), [2, 2048]);
    let nowhere = folder.path().join("missing").join("x.safetensors");
    let refused = pawl(&[
        "logits",
        "--model",
        model,
        "--ids",
        "1",
        "--out",
        nowhere.to_str().unwrap(),
    ]);
    assert_refused(&refused, &["x.safetensors", "/missing` does not exist"]);
    assert_refused(
        &pawl(&["logits", "--model", model, "--ids", "1,4096", "--out", path]),
        &["4096", "vocabulary of 2048"],
    );
    assert_eq!(std::fs::read(&out).unwrap(), bytes);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[cfg(unix)]
#[test]
fn what_is_written_has_the_mode_of_any_new_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mode = |name: &str| std::fs::metadata(at(name)).unwrap().permissions().mode();
    std::fs::write(at("plain"), "").unwrap();
    let (logits, trace) = (at("logits"), at("trace"));
    let (model, out) = (model().to_str().unwrap(), logits.to_str().unwrap());
    let output = pawl(&["logits", "--model", model, "--ids", "1,2", "--out", out]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let trace = ["--ids", "1,2", "--trace", trace.to_str().unwrap()];
    let output = generate(&[&trace[..], &["--max-new-tokens", "2"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    for name in ["logits", "trace"] {
        assert_eq!(mode(name), mode("plain"), "{name}");
    }
}

#[test]
fn bad_input_is_refused_by_name() {
    let empty = tempfile::tempdir().unwrap();
    let empty_path = empty.path().to_str().unwrap();
    let missing = empty.path().join("nothing");
    assert_refused(&pawl(&["inspect", missing.to_str().unwrap()]), &["nothing"]);
    assert_refused(
        &pawl(&["generate", "--model", empty_path, "--prompt", "x"]),
        &["genai_config.json"],
    );
    assert_refused(
        &generate(&["--prompt-file", "no-such-file.txt"]),
        &["no-such-file.txt"],
    );
    assert_refused(&generate(&["--ids", "4096"]), &["4096", "2048"]);
    assert_refused(&generate(&["--prompt", ""]), &["empty"]);
    assert_refused(
        &generate(&["--prompt", "x", "--max-new-tokens", "0"]),
        &["--max-new-tokens", "expected a whole number from 1"],
    );
    assert_refused(
        &generate(&["--prompt", "x", "--top-p", "2"]),
        &["top_p", "2"],
    );
    assert_refused(
        &generate(&["--prompt", "x", "--temperature", "nan"]),
        &["temperature"],
    );
    assert_refused(
        &generate(&["--prompt", "x", "--temperature", "warm"]),
        &["--temperature", "expected a number"],
    );
    assert_refused(&generate(&["--ids", "1,x"]), &["1,x"]);
    assert_refused(&generate(&[]), &["--prompt"]);
    assert_refused(
        &pawl(&["generate", "--model", empty_path, "--unknown"]),
        &["--unknown"],
    );
    assert_eq!(std::fs::read_dir(empty.path()).unwrap().count(), 0);
}

/// What contradicts itself is refused by the names that were used, before a model is loaded.
#[test]
fn numbers_of_drafts_that_are_of_no_use_are_refused() {
    let nowhere = |command: &str, more: &[&str], variable: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_pawl"))
            .args([command, "--model", "nowhere"])
            .args(more)
            .env("PAWL_SPECULATION", variable)
            .output();
        output.unwrap()
    };
    let template = common::copy_of_model();
    let model = template.path().to_str().unwrap();
    let ids = ["--ids", "1"];
    let drafts = ["--max-drafts", "3"];
    let off = [&ids[..], &drafts, &["--speculation", "off"]].concat();
    let both = [
        "--max-drafts is 3, but --speculation is off",
        "leave --max-drafts out",
    ];
    assert_refused(&nowhere("generate", &off, ""), &both);
    assert_refused(&nowhere("generate", &off, "mtp"), &both);
    let variable = ["--max-drafts is 3, but PAWL_SPECULATION is off"];
    assert_refused(
        &nowhere("generate", &[&ids[..], &drafts].concat(), "off"),
        &variable,
    );
    let trees = [&ids[..], &["--tree-nodes", "4", "--speculation", "ngram"]].concat();
    assert_refused(
        &nowhere("generate", &trees, ""),
        &["--tree-nodes is 4, but --speculation is ngram, which drafts no trees"],
    );
    let chat = [
        "chat",
        "--model",
        model,
        "--speculation",
        "off",
        "--max-drafts",
        "3",
    ];
    assert_refused(&pawl(&chat), &both);
    assert_refused(
        &generate(&["--ids", "1", "--tree-nodes", "4"]),
        &["--tree-nodes is 4, but the default speculation is mtp"],
    );
}

/// What a limit of memory asks for can be done on the same command line.
#[test]
fn memory_is_bounded_by_options_that_there_are() {
    let limited = |more: &[&str]| {
        generate(
            &[
                &[
                    "--ids",
                    "1",
                    "--max-new-tokens",
                    "2",
                    "--memory-limit",
                    "24MiB",
                ],
                more,
            ]
            .concat(),
        )
    };
    let refused = limited(&["--kv-blocks", "4000"]);
    assert_refused(
        &refused,
        &[
            "memory limit of 24.0 MiB; raise it, or lower --max-batch-size (now 16) or --kv-blocks (now 4000)",
        ],
    );
    let fits = limited(&["--kv-blocks", "8", "--max-batch-size", "1"]);
    let plan = text(&fits.stderr);
    assert!(fits.status.success(), "{plan}");
    assert!(plan.contains("key/value cache, 8 blocks") && plan.contains("2 banks of 1 slot "));
    let inspect = [
        "inspect",
        model().to_str().unwrap(),
        "--memory-limit",
        "1MiB",
    ];
    assert_refused(&pawl(&inspect), &["or lower --max-batch-size (now 16)"]);
}

#[test]
fn a_checkpoint_has_to_be_exported_first() {
    let checkpoint = common::workspace().join("models/checkpoints/tiny-python");
    let checkpoint = checkpoint.to_str().unwrap();
    let command = format!("exported first: build-model --input {checkpoint} --output");
    let ids = ["generate", "--model", checkpoint, "--ids", "1"];
    assert_refused(&pawl(&ids), &[&command, "no genai_config.json"]);
    assert_refused(&pawl(&["inspect", checkpoint]), &[&command]);
}

#[test]
fn a_library_that_is_not_onnx_runtime_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libonnxruntime.so");
    assert_refused(
        &generate(&["--ids", "1", "--library", library.to_str().unwrap()]),
        &["libonnxruntime.so"],
    );
    std::fs::write(&library, b"not a library").unwrap();
    assert_refused(
        &generate(&["--ids", "1", "--library", library.to_str().unwrap()]),
        &["libonnxruntime.so"],
    );
}

/// A head that was exported wrongly is given up, and the printed summary says so and how drafts were made last.
#[test]
fn what_is_given_up_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let input = common::workspace().join("models/checkpoints/tiny-python");
    let mut options = pawl_builder::BuildOptions::default();
    options.wiring.order = pawl_builder::HeadOrder::HiddenFirst;
    let request = pawl_builder::BuildRequest::new(input, folder.path().join("model"), options);
    let staged = pawl_builder::build(&request, &mut ()).unwrap();
    let (model, _) = staged.publish().unwrap();
    let model = model.to_str().unwrap();
    let ask = ["generate", "--model", model, "--prompt", "def main():\n"];
    let ask = [&ask[..], &["--max-new-tokens", "120", "--ignore-eos"]].concat();
    let output = pawl(&ask);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert!(
        printed.contains("given up: head: 0 of its first"),
        "{printed}"
    );
    assert!(
        printed.contains("; last no drafts (no source has drafts)"),
        "{printed}"
    );
    let output = pawl(&[&ask[..], &["--json"]].concat());
    let printed = text(&output.stdout);
    assert!(printed.contains("--mtp-order"), "{printed}");
}

#[test]
fn texts_are_held_to_a_grammar() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let schema = r#"{"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 1, "maxItems": 4}"#;
    let schema = file("schema.json", schema);
    let lark = file("sum.lark", "start: N (\"+\" N)~2\nN: /[0-9]/");
    for (option, value) in [
        ("--json-schema", &*schema),
        ("--regex", "[0-9]\\+[0-9]\\+[0-9]"),
        ("--lark", &*lark),
    ] {
        let args = ["--prompt", "x = ", option, value, "--json"];
        let output = generate(&args);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let object: serde_json::Value = serde_json::from_str(&text(&output.stdout)).unwrap();
        let found = object["text"].as_str().unwrap();
        match option {
            "--json-schema" => {
                let list: Vec<u8> = serde_json::from_str(found).unwrap();
                assert!((1..=4).contains(&list.len()), "{found}");
            }
            _ => assert!(
                found.len() == 5 && found.matches('+').count() == 2,
                "{found}"
            ),
        }
    }
    let refused = |args: &[&str], words: &[&str]| {
        assert_refused(&generate(&[&["--ids", "1"], args].concat()), words);
    };
    refused(
        &["--regex", "(a"],
        &["prompt 0", "the regular expression", "unclosed group"],
    );
    refused(&["--regex", "a", "--lark", &lark], &["cannot be used with"]);
    refused(&["--lark", "no/such/file"], &["no/such/file"]);
    refused(
        &["--json-schema", &lark],
        &["the JSON schema", "line 1 column 1"],
    );
    refused(
        &["--lark", &lark, "--trace", &lark],
        &["is the grammar file"],
    );
}
