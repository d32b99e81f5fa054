//! Prompts, options and limits of generation.

use std::fs;
use std::path::Path;

use pawl::ErrorCode;
use serde_json::json;

use super::case::Case;
use super::run;
use super::world::{checkpoint, edit, link, model, model_of_nan, set, write};

pub(crate) fn cases() -> Vec<Case> {
    [options(), prompts(), bytes(), stops(), memory(), weights()].concat()
}

/// Texts and paths that are no UTF-8, at every door of the command line.
fn bytes() -> Vec<Case> {
    let refused: &[&str] = &["invalid UTF-8"];
    let mut cases: Vec<Case> = ["--prompt", "--stop", "--ids", "--temperature"]
        .into_iter()
        .map(|option| {
            let more = [option, "a{byte}b"];
            Case::generate(format!("{option} that is not UTF-8"), &more, refused, model)
        })
        .collect();
    let file = |option: &str, ids: &[&str]| {
        let more = [&[option, "{here}/a{byte}b"][..], ids].concat();
        Case::generate(
            format!("{option} of such a name"),
            &more,
            &["{here}/a"],
            model,
        )
    };
    let build = |name: &str, input: &str, output: &str, words: &[&str]| {
        let args = ["--input", input, "--output", output];
        Case::new(name, "build-model", &args, words, checkpoint)
    };
    cases.extend([
        file("--prompt-file", &[]),
        file("--library", &["--ids", "5"]),
        Case::chat(
            "a system message that is not UTF-8",
            &["--system", "{byte}"],
            "a",
            refused,
            model,
        ),
        Case::load(
            "a library of such a name in the environment",
            &["ORT_DYLIB_PATH"],
            model,
        )
        .variable("ORT_DYLIB_PATH", "{here}/{byte}.so"),
        ids("threads that are not UTF-8", &[], &["PAWL_THREADS"])
            .variable("PAWL_THREADS", "{byte}"),
        ids("an audit that is not UTF-8", &[], &["PAWL_AUDIT"]).variable("PAWL_AUDIT", "{byte}"),
        build(
            "an input of such a name",
            "{here}/in{byte}",
            "{here}/to/out",
            &["{here}/in"],
        ),
        build(
            "an output of such a name",
            "{here}/in",
            "{here}/to/{byte}",
            &["{here}/to"],
        ),
        Case::new(
            "a model of such a name",
            "pawl",
            &["inspect", "{here}/{byte}"],
            &["{here}/"],
            |_| {},
        ),
    ]);
    cases.extend(names());
    cases
}

/// Folders and files whose names are no UTF-8, where everything else is sound.
fn names() -> Vec<Case> {
    let odd = |here: &Path| {
        model(here);
        fs::rename(here.join("model"), here.join(run::bytes("m{byte}"))).unwrap();
    };
    let pawl = |name: &str, args: &[&str], words: &[&str]| {
        Case::new(name, "pawl", args, words, odd).succeeds()
    };
    let generate = [
        "generate",
        "--model",
        "{here}/m{byte}",
        "--ids",
        "5",
        "--json",
        "--max-new-tokens",
        "2",
    ];
    let plan = [
        "inspect",
        "--json",
        "--plan",
        "{here}/m{byte}/genai_config.json",
    ];
    let traced = [&generate[..], &["--trace", "{here}/t{byte}"]].concat();
    let build = |name: &str, more: &[&str]| {
        let args = [
            &["--input", "{here}/in", "--output", "{here}/to{byte}/out"],
            more,
        ]
        .concat();
        Case::new(name, "build-model", &args, &["out"], checkpoint).leaves("to{byte}")
    };
    vec![
        pawl(
            "a sound model of such a name",
            &["inspect", "{here}/m{byte}"],
            &["layers"],
        ),
        pawl(
            "a sound model of such a name as JSON",
            &["inspect", "{here}/m{byte}", "--json"],
            &["\"folder\": \"{here}/m\u{fffd}\""],
        ),
        pawl("a plan of such a name as JSON", &plan, &["overhead"]),
        pawl("an answer of such a model", &generate, &["tokens"]),
        pawl("a trace of such a name", &traced, &["tokens"]).leaves("t{byte}"),
        build("a build below such a name", &[]),
        build("a build below such a name as JSON", &["--json"]),
    ]
}

fn ids(name: &str, more: &[&str], words: &[&str]) -> Case {
    let all = [&["--ids", "5,6,7"], more].concat();
    Case::generate(name, &all, words, model)
}

/// Options that are no numbers, or numbers that cannot be.
fn options() -> Vec<Case> {
    let table: &[(&[&str], &str)] = &[
        (&["--temperature", "-1"], "temperature"),
        (&["--temperature", "nan"], "temperature"),
        (&["--temperature", "inf"], "temperature"),
        (&["--temperature", "1e400"], "temperature"),
        (&["--temperature", "warm"], "--temperature"),
        (&["--top-p", "-0.5"], "top_p"),
        (&["--top-p", "1.01"], "top_p"),
        (&["--top-p", "nan"], "top_p"),
        (&["--min-p", "-1"], "min_p"),
        (&["--min-p", "2"], "min_p"),
        (&["--top-k", "-1"], "--top-k"),
        (&["--top-k", "4294967296"], "--top-k"),
        (&["--top-k", "1.5"], "--top-k"),
        (&["--seed", "-1"], "--seed"),
        (&["--seed", "18446744073709551616"], "--seed"),
        (&["--max-drafts", "0"], "drafts"),
        (&["--max-drafts", "8"], "drafts"),
        (&["--max-drafts", "-1"], "--max-drafts"),
        (&["--max-drafts", "18446744073709551615"], "drafts"),
        (&["--speculation", "crystal"], "--speculation"),
        (&["--threads", "0"], "--threads"),
        (&["--threads", "-2"], "--threads"),
        (&["--threads", "100000"], "threads"),
        (&["--draft-policy", "wild"], "--draft-policy"),
        (
            &["--speculation", "tree", "--tree-nodes", "0"],
            "--tree-nodes is 0, expected 1 to 16",
        ),
        (&["--speculation", "tree", "--tree-nodes", "17"], "1 to 16"),
        (&["--tree-nodes", "-1"], "--tree-nodes"),
        (
            &["--speculation", "off", "--max-drafts", "3"],
            "--max-drafts is 3, but --speculation is off",
        ),
        (
            &["--speculation", "mtp", "--tree-nodes", "3"],
            "--tree-nodes is 3, but --speculation is mtp",
        ),
        (&["--max-batch-size", "0"], "a whole number from 1"),
        (&["--max-batch-size", "-1"], "--max-batch-size"),
        (
            &["--max-batch-size", "18446744073709551615"],
            "larger than the address space",
        ),
        (&["--kv-blocks", "0"], "a whole number from 1"),
        (
            &["--kv-blocks", "18446744073709551615"],
            "larger than the address space",
        ),
        (&["--stop", ""], "stop string 0"),
        (&["--chat"], "--chat"),
        (&["--frobnicate"], "--frobnicate"),
        (&["surplus"], "surplus"),
        (&["--memory-limit", "0"], "--memory-limit"),
        (&["--memory-limit", "-1"], "--memory-limit"),
        (&["--memory-limit", "lots"], "--memory-limit"),
        (
            &["--memory-limit", "99999999999999999999GiB"],
            "--memory-limit",
        ),
    ];
    let mut cases: Vec<Case> = table
        .iter()
        .map(|(more, word)| ids(&more.join(" "), more, &[word]))
        .collect();
    for budget in ["0", "-1", "many", "18446744073709551616"] {
        let args = [
            "generate",
            "--model",
            "{here}/model",
            "--ids",
            "5",
            "--max-new-tokens",
            budget,
        ];
        let name = format!("--max-new-tokens {budget}");
        cases.push(Case::new(name, "pawl", &args, &["max"], model));
    }
    let endless = [
        "generate",
        "--model",
        "{here}/model",
        "--ids",
        "5",
        "--ignore-eos",
        "--json",
        "--max-new-tokens",
        "18446744073709551615",
    ];
    cases.push(
        Case::new(
            "a budget of 2^64 ends with the context",
            "pawl",
            &endless,
            &["context_length"],
            |here| {
                model(here);
                edit(&here.join("model/genai_config.json"), |config| {
                    set(config, "/model/context_length", json!(40));
                    set(config, "/search/max_length", json!(40));
                });
            },
        )
        .succeeds(),
    );
    for (name, value, word) in [
        ("PAWL_THREADS", "0", "PAWL_THREADS"),
        ("PAWL_THREADS", "many", "PAWL_THREADS"),
        ("PAWL_THREADS", "99999999", "PAWL_THREADS"),
        ("PAWL_SPECULATION", "crystal", "PAWL_SPECULATION"),
        ("PAWL_DRAFT_POLICY", "wild", "PAWL_DRAFT_POLICY"),
    ] {
        cases.push(ids(&format!("{name} of {value}"), &[], &[word]).variable(name, value));
    }
    let contradicted = ids(
        "PAWL_SPECULATION of off and a number of drafts",
        &["--max-drafts", "3"],
        &["--max-drafts is 3, but PAWL_SPECULATION is off"],
    );
    cases.push(contradicted.variable("PAWL_SPECULATION", "off"));
    cases
}

fn prompts() -> Vec<Case> {
    let case = |name: &str, more: &[&str], words: &[&str]| Case::generate(name, more, words, model);
    let long = vec!["5"; 2048].join(",");
    let file = |name: &str, bytes: Vec<u8>, words: &[&str]| {
        Case::generate(
            name,
            &["--prompt-file", "{here}/prompt"],
            words,
            move |here| {
                model(here);
                write(&here.join("prompt"), &bytes);
            },
        )
    };
    let many: Vec<&str> = std::iter::repeat_n(["--ids", "5"], 1500)
        .flatten()
        .collect();
    let mut cases = vec![
        case("no prompt", &[], &["--prompt"]),
        case("an empty prompt", &["--prompt", ""], &["prompt 0", "empty"]),
        case("an empty list of ids", &["--ids", ""], &["--ids"]),
        case("ids that are words", &["--ids", "5,six"], &["--ids", "six"]),
        case("a negative id", &["--ids", "5,-6"], &["--ids", "-6"]),
        case(
            "an id of 2^32",
            &["--ids", "4294967296"],
            &["--ids", "4294967296"],
        ),
        case(
            "an id outside of the vocabulary",
            &["--ids", "5,331"],
            &["prompt token 1 is 331", "331 tokens"],
        )
        .coded(ErrorCode::RequestInvalid),
        case(
            "the second of two prompts outside",
            &["--ids", "5", "--ids", "4294967295"],
            &["prompt 1", "4294967295"],
        ),
        case(
            "a prompt as long as the context",
            &["--ids", &long],
            &["2048 tokens", "2048"],
        )
        .coded(ErrorCode::RequestInvalid),
        case(
            "a chat of ids",
            &["--chat", "--ids", "5"],
            &["--chat", "--ids"],
        ),
        Case::new(
            "1,500 prompts queue",
            "pawl",
            &[
                &[
                    "generate",
                    "--model",
                    "{here}/model",
                    "--json",
                    "--max-new-tokens",
                    "1",
                ],
                &many[..],
            ]
            .concat(),
            &["tokens"],
            model,
        )
        .succeeds(),
        file("an empty prompt file", Vec::new(), &["prompt 0", "empty"]),
        file(
            "a file that is not UTF-8",
            b"abc\xFFdef".to_vec(),
            &["{here}/prompt", "byte 3"],
        ),
        file(
            "a file of 17 MB",
            vec![b'a'; 17 << 20],
            &["{here}/prompt", "is larger than"],
        ),
        file(
            "a file longer than the context",
            vec![b'a'; 3000],
            &["prompt 0", "3000 tokens"],
        ),
        Case::generate(
            "a prompt file that is not there",
            &["--prompt-file", "{here}/prompt"],
            &["{here}/prompt"],
            model,
        ),
        Case::generate(
            "a prompt file that is a folder",
            &["--prompt-file", "{here}/model"],
            &["{here}/model", "directory"],
            model,
        ),
        Case::generate(
            "a prompt file without end",
            &["--prompt-file", "{here}/prompt"],
            &["{here}/prompt", "is larger than"],
            |here| {
                model(here);
                link(Path::new("/dev/zero"), &here.join("prompt"));
            },
        ),
        Case::generate(
            "a text for a model without a tokenizer",
            &["--prompt", "x"],
            &["no tokenizer"],
            |here| {
                model(here);
                fs::remove_file(here.join("model/tokenizer.json")).unwrap();
            },
        ),
        Case::generate(
            "a prompt longer than the cache",
            &["--ids", &vec!["5"; 600].join(",")],
            &["600 tokens", "512"],
            |here| {
                model(here);
                edit(&here.join("model/genai_config.json"), |config| {
                    set(config, "/engine/dynamic_batching/num_blocks", json!(16));
                });
            },
        ),
    ];
    let logits = |name: &str, ids: &str, more: &[&str], words: &[&str]| {
        let args = [
            &[
                "logits",
                "--model",
                "{here}/model",
                "--out",
                "{here}/out",
                "--ids",
                ids,
            ],
            more,
        ]
        .concat();
        Case::new(name, "pawl", &args, words, model)
    };
    cases.extend([
        logits("logits of three ids", "5,6,7", &[], &[]).leaves("out"),
        logits("logits in one step", "5,6,7", &["--chunk", "0"], &[]).leaves("out"),
        logits("logits of an id outside", "331", &[], &["331"]),
        logits("logits beyond the context", &long_by_one(), &[], &["2049"]),
        logits(
            "logits in chunks of -1",
            "5",
            &["--chunk", "-1"],
            &["--chunk"],
        ),
        logits("logits of nothing", "", &[], &["--ids"]),
    ]);
    cases.extend(overwritten());
    cases
}

/// Outputs that are something the command reads.
fn overwritten() -> Vec<Case> {
    let with_prompt = |here: &Path| {
        model(here);
        write(&here.join("prompt"), b"hello");
        link(&here.join("model/model.onnx.data"), &here.join("link"));
        fs::create_dir(here.join("model/more")).unwrap();
        write(&here.join("model/more/file"), b"{}");
    };
    let logits = |out: &str, words: &[&str]| {
        let args = [
            "logits",
            "--model",
            "{here}/model",
            "--ids",
            "5,6",
            "--out",
            out,
        ];
        let name = format!("logits over an input: {out}");
        Case::new(name, "pawl", &args, words, with_prompt)
    };
    let trace = |out: &str, words: &[&str]| {
        let more = ["--prompt-file", "{here}/prompt", "--trace", out];
        let name = format!("a trace over an input: {out}");
        Case::generate(name, &more, words, with_prompt)
    };
    vec![
        logits(
            "{here}/model/model.onnx",
            &["{here}/model/model.onnx", "is a file of the model"],
        ),
        logits(
            "{here}/link",
            &["{here}/link", "is a file of the model", "{here}/model"],
        ),
        trace(
            "{here}/model/more/file",
            &["{here}/model/more/file", "is a file of the model"],
        ),
        trace(
            "{here}/model/genai_config.json",
            &[
                "genai_config.json",
                "is a file of the model",
                "{here}/model",
            ],
        ),
        trace("{here}/prompt", &["{here}/prompt", "is the prompt file"]),
    ]
}

fn long_by_one() -> String {
    vec!["5"; 2049].join(",")
}

/// Texts to stop at.
fn stops() -> Vec<Case> {
    let many: Vec<String> = (0..10_000)
        .flat_map(|index| ["--stop".to_owned(), format!("stop{index}")])
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let long = "x".repeat(100_000);
    vec![
        ids("10,000 stop strings", &many, &["generated tokens"]).succeeds(),
        ids(
            "300 KB of stop strings",
            &["--stop", &long, "--stop", &long, "--stop", &long],
            &["stop strings", "300000 bytes"],
        ),
        ids(
            "a stop string of half a character",
            &["--stop", "\u{FFFD}"],
            &["generated tokens"],
        )
        .succeeds(),
        ids(
            "greedy with filters",
            &[
                "--temperature",
                "0",
                "--top-k",
                "5",
                "--top-p",
                "0.5",
                "--seed",
                "1",
            ],
            &["generated tokens"],
        )
        .succeeds(),
        ids(
            "filters that leave one token",
            &[
                "--temperature",
                "9",
                "--top-k",
                "1",
                "--top-p",
                "0",
                "--min-p",
                "1",
            ],
            &["generated tokens"],
        )
        .succeeds(),
        ids(
            "the smallest temperature",
            &["--temperature", "1e-45"],
            &["generated tokens"],
        )
        .succeeds(),
        ids(
            "the largest temperature",
            &["--temperature", "3e38"],
            &["generated tokens"],
        )
        .succeeds(),
    ]
}

/// Limits of memory.
fn memory() -> Vec<Case> {
    let limited = |name: &str, limit: &str, words: &[&str]| {
        Case::generate(name, &["--ids", "5", "--memory-limit", limit], words, model)
    };
    vec![
        limited(
            "a limit of a byte",
            "1",
            &["memory limit of 1 B", "key/value cache", "total"],
        )
        .coded(ErrorCode::OutOfMemory),
        limited(
            "a limit of 5 MiB",
            "5MiB",
            &["memory limit of 5.0 MiB", "total"],
        )
        .coded(ErrorCode::OutOfMemory),
        limited(
            "a limit that shrinks the cache",
            "32MiB",
            &["key/value cache, 526 blocks", "total"],
        )
        .succeeds(),
        limited(
            "a limit of 1 TiB",
            "1TiB",
            &["key/value cache, 1024 blocks", "total"],
        )
        .succeeds(),
    ]
}

/// Weights that compute nothing.
fn weights() -> Vec<Case> {
    vec![
        Case::generate(
            "a model of NaN",
            &["--ids", "5,6"],
            &["prompt 0", "cannot draw a token"],
            model_of_nan,
        )
        .coded(ErrorCode::StepFailed),
    ]
}
