//! Conversations: lines that are no text, templates that fail in the middle, streams that end.

use std::fs;

use serde_json::json;

use super::case::{Case, Output};
use super::world::{edit, model, model_of_nan, set, write};

pub(crate) fn cases() -> Vec<Case> {
    [lines(), options(), models(), streams()].concat()
}

/// What standard input says.
fn lines() -> Vec<Case> {
    let case =
        |name: &str, lines: Vec<u8>, words: &[&str]| Case::chat(name, &[], lines, words, model);
    let text = |name: &str, lines: &str, words: &[&str]| case(name, lines.into(), words);
    let answered: &[&str] = &["prompt tokens", "2 generated"];
    let refused: &[&str] = &["standard input"];
    vec![
        text("a chat", "hello\n", answered).succeeds(),
        text("a chat that ends without a line end", "hello", answered).succeeds(),
        text(
            "a chat of two turns",
            "a\nb\n",
            &["prompt tokens", "reused"],
        )
        .succeeds(),
        text("a chat of nothing", "", &[]).succeeds(),
        text("a chat of empty lines", "\n\r\n \n\t\n", &[]).succeeds(),
        text("a chat of NUL", "a\0b\n", answered).succeeds(),
        text(
            "a chat of control characters",
            "\u{1b}[2J\u{7}\u{202e}\n",
            answered,
        )
        .succeeds(),
        text("a chat that is quit", "/quit\nnever\n", &[]).succeeds(),
        text("an unknown command", "/undo\n", &["/undo", "/help"]),
        text("a command of a slash", "/\n", &["is no command"]),
        text(
            "a command of 100 KB",
            &format!("/{}\n", "x".repeat(100_000)),
            &["is no command"],
        ),
        text("a reset of nothing", "/reset\n/stats\n", &["0 turns"]).succeeds(),
        text("a line that begins with two slashes", "//quit\n", answered).succeeds(),
        case("a line that is not UTF-8", b"a\xFFb\n".to_vec(), refused),
        case("half a character", b"a\xE2\x82\n".to_vec(), &["not UTF-8"]),
        case(
            "a lone surrogate as bytes",
            b"\xED\xA0\x80\n".to_vec(),
            &["not UTF-8"],
        ),
        case(
            "a second line that is not UTF-8",
            b"a\n\xFF\n".to_vec(),
            &["not UTF-8"],
        )
        .late(),
        case(
            "a line of 9 MB",
            vec![b'a'; 9 << 20],
            &["standard input", "longer than 8388608"],
        ),
        text(
            "a line longer than the context",
            &format!("{}\n", "a".repeat(3000)),
            &["prompt 0", "2048"],
        ),
        text(
            "a chat that fills its context",
            &format!("{}\n", "a".repeat(1000)).repeat(3),
            &["prompt 2", "2048"],
        )
        .late(),
    ]
}

/// Options that cannot be.
fn options() -> Vec<Case> {
    let table: &[(&[&str], &str)] = &[
        (&["--max-new-tokens", "-1"], "--max-new-tokens"),
        (&["--max-new-tokens", "0"], "--max-new-tokens"),
        (&["--temperature", "nan"], "temperature"),
        (&["--top-p", "2"], "top_p"),
        (&["--max-drafts", "9"], "drafts"),
        (&["--memory-limit", "1"], "memory limit"),
        (&["--threads", "0"], "--threads"),
        (&["--ids", "5"], "--ids"),
        (&["--prompt", "x"], "--prompt"),
    ];
    table
        .iter()
        .map(|(more, word)| {
            let args = [&["chat", "--model", "{here}/model"], *more].concat();
            let name = format!("chat {}", more.join(" "));
            Case::new(name, "pawl", &args, &[word], model).input("hello\n")
        })
        .collect()
}

/// Models that cannot chat, or stop in the middle.
fn models() -> Vec<Case> {
    let template = |name: &str, source: &'static str, lines: &str, words: &[&str]| {
        Case::chat(name, &[], lines, words, move |here| {
            model(here);
            write(&here.join("model/chat_template.jinja"), source);
        })
    };
    let raises = "{% if messages | length > 2 %}{{ raise_exception('enough') }}{% endif %}x";
    let without = |name: &str, file: &'static str, words: &[&str]| {
        Case::chat(name, &[], "hello\n", words, move |here| {
            model(here);
            fs::remove_file(here.join("model").join(file)).unwrap();
        })
    };
    vec![
        template(
            "a template without end in a chat",
            "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}",
            "hello\n",
            &["chat template", "fuel"],
        ),
        template(
            "a template that raises in the second turn",
            raises,
            "a\nb\n",
            &["enough"],
        )
        .late(),
        template(
            "a template that forgets everything",
            "x",
            "a\nb\n",
            &["prompt tokens"],
        )
        .succeeds(),
        template(
            "a template of nothing in a chat",
            "",
            "a\n",
            &["prompt 0", "empty"],
        ),
        template(
            "a template that is wrong in a chat",
            "{% if %}",
            "a\n",
            &["chat template"],
        ),
        template(
            "a system message that the template refuses",
            "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}x",
            "a\n",
            &["1 prompt token "],
        )
        .succeeds(),
        without(
            "a chat without a template",
            "chat_template.jinja",
            &["no chat template"],
        ),
        without(
            "a chat without a tokenizer",
            "tokenizer.json",
            &["tokenizer.json"],
        ),
        without(
            "a chat without a configuration",
            "genai_config.json",
            &["genai_config.json"],
        ),
        Case::new(
            "a chat with no model",
            "pawl",
            &["chat", "--model", "{here}/model"],
            &["{here}/model"],
            |_| {},
        ),
        Case::chat(
            "a chat of a small cache",
            &[],
            format!("{}\n", "a".repeat(600)),
            &["prompt 0", "512"],
            |here| {
                model(here);
                edit(&here.join("model/genai_config.json"), |config| {
                    set(config, "/engine/dynamic_batching/num_blocks", json!(16));
                });
            },
        ),
        Case::chat(
            "a chat of NaN",
            &[],
            "hello\n",
            &["prompt 0", "cannot draw a token"],
            model_of_nan,
        ),
    ]
}

/// Output that cannot be written.
fn streams() -> Vec<Case> {
    let case = |name: &str, lines: &str, words: &[&str], output: Output| {
        Case::chat(name, &[], lines, words, model).output(output)
    };
    let no_space: &[&str] = &["standard output", "No space left"];
    vec![
        case("a chat, output full", "hello\n", no_space, Output::Full),
        case(
            "the help of a chat, output full",
            "/help\n",
            no_space,
            Output::Full,
        ),
        case(
            "the sums of a chat, output full",
            "/stats\n",
            no_space,
            Output::Full,
        ),
        case("a chat, output gone", "hello\n", &[], Output::Gone).code(141),
        case("a chat, errors full", "hello\n", &[], Output::ErrorsFull).code(0),
    ]
}
