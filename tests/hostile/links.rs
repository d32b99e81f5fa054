//! What is no regular file in the place of one, and links that lead out of a model folder.

use std::path::Path;

use super::case::Case;
use super::world::{Odd, checkpoint, edit, link, model, move_out, set, sparse};

/// Files of a checkpoint that a build reads.
const BUILD: [&str; 6] = [
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
];

/// Files that a model is loaded from.
const LOAD: [&str; 4] = [
    "genai_config.json",
    "model.onnx",
    "mtp.onnx",
    "model.onnx.data",
];

/// Files that `pawl generate --chat` reads besides.
const CHAT: [&str; 4] = [
    "tokenizer.json",
    "chat_template.jinja",
    "tokenizer_config.json",
    "special_tokens_map.json",
];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for odd in Odd::ALL {
        let named = |file: &str| format!("{odd:?} as {file}").to_lowercase();
        for file in BUILD {
            let put = move |here: &Path| {
                checkpoint(here);
                odd.put(&here.join("in").join(file));
            };
            cases.push(Case::build(
                named(file) + " of a checkpoint",
                &[],
                &[file, words(odd, file, "at most")],
                put,
            ));
        }
        for file in LOAD {
            // A data file that is too long is not read to its end.
            if odd == Odd::Sparse && file == "model.onnx.data" {
                continue;
            }
            let put = move |here: &Path| {
                model(here);
                odd.put(&here.join("model").join(file));
            };
            let words = match odd {
                Odd::Zeros if file != "genai_config.json" => "leads out of the model folder",
                _ => words(odd, file, "more than the 2147483647 bytes"),
            };
            cases.push(Case::load(named(file), &[file, words], put));
        }
        for file in CHAT {
            let put = move |here: &Path| {
                model(here);
                odd.put(&here.join("model").join(file));
            };
            let chat = ["--chat", "--prompt", "x"];
            cases.push(Case::generate(
                named(file),
                &chat,
                &[file, words(odd, file, "is larger than")],
                put,
            ));
        }
    }
    cases.extend(leading_out());
    cases.extend(sizes());
    cases
}

/// What is said of a file, and of a large one of zeros, in most places.
fn words(odd: Odd, file: &str, large: &'static str) -> &'static str {
    match (odd, file) {
        (Odd::Sparse, "config.json" | "generation_config.json") => "is larger than",
        (Odd::Sparse, "model.safetensors") => "not a JSON object",
        (Odd::Sparse, "genai_config.json") => "too_large",
        (Odd::Sparse, _) => large,
        _ => odd.words(),
    }
}

/// Files that the configuration names, moved out of the folder with a link to them left behind.
fn leading_out() -> Vec<Case> {
    let mut cases: Vec<Case> = ["model.onnx", "mtp.onnx", "model.onnx.data"]
        .into_iter()
        .map(|file| {
            Case::load(
                format!("{file} outside"),
                &[file, "leads out of the model folder"],
                move |here| {
                    model(here);
                    move_out(here, &here.join("model").join(file));
                },
            )
        })
        .collect();
    cases.push(Case::generate(
        "a tokenizer folder outside",
        &["--prompt", "x"],
        &["words", "leads out of the model folder"],
        |here| {
            model(here);
            std::fs::create_dir(here.join("outside")).unwrap();
            link(&here.join("outside"), &here.join("model/words"));
            edit(&here.join("model/genai_config.json"), |config| {
                set(config, "/model/tokenizer_dir", "words".into());
            });
        },
    ));
    cases.push(
        Case::build(
            "a checkpoint whose files are links is built",
            &[],
            &["to/out"],
            |here| {
                checkpoint(here);
                for file in ["config.json", "model.safetensors"] {
                    move_out(here, &here.join("in").join(file));
                }
            },
        )
        .succeeds(),
    );
    cases
}

/// Files that are larger than any that is read.
fn sizes() -> Vec<Case> {
    let large = |file: &'static str, bytes: u64| {
        move |here: &Path| {
            checkpoint(here);
            sparse(&here.join("in").join(file), bytes);
        }
    };
    vec![
        Case::build(
            "100 MB of config.json",
            &[],
            &["config.json", "is larger than"],
            large("config.json", 100 << 20),
        ),
        Case::build(
            "an index of 100 MB",
            &[],
            &["model.safetensors.index.json", "is larger than"],
            |here| {
                checkpoint(here);
                std::fs::remove_file(here.join("in/model.safetensors")).unwrap();
                sparse(&here.join("in/model.safetensors.index.json"), 100 << 20);
            },
        ),
        Case::build(
            "a tokenizer of 1 GiB",
            &[],
            &["tokenizer.json", "at most"],
            large("tokenizer.json", 1 << 30),
        ),
        Case::load(
            "2 MiB of genai_config.json",
            &["genai_config.json", "too_large"],
            |here| {
                model(here);
                sparse(&here.join("model/genai_config.json"), 2 << 20);
            },
        ),
        Case::generate(
            "a chat template of 2 MiB",
            &["--chat", "--prompt", "x"],
            &["chat_template.jinja", "is larger than"],
            |here| {
                model(here);
                std::fs::write(here.join("model/chat_template.jinja"), " ".repeat(2 << 20))
                    .unwrap();
            },
        ),
    ]
}
