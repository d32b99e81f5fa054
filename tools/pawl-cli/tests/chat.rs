//! `pawl chat` over pipes: turns, reuse, commands, interruption.

#![allow(clippy::unwrap_used, reason = "a case stops where its set-up fails")]

mod common;

use common::{assert_refused, copy_of_model, model, text};
use pawl::{
    ChatTemplate, Completion, Engine, EngineOptions, LoadOptions, Message, Model, Request,
    SamplingParams,
};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const FIRST: &str = "Write this Python function. Return the larger of two numbers.";
const SECOND: &str = "Write this Python function. Return the smaller of two numbers.";

fn start(model: &Path, args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_pawl"))
        .args(["chat", "--model", model.to_str().unwrap()])
        .args(args)
        .env("PAWL_COST_FOLDER", "off")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs a chat over some lines.
fn chat(model: &Path, args: &[&str], lines: &[&str]) -> Output {
    let mut child = start(model, args);
    let input = lines.join("\n") + "\n";
    // A program that refuses its arguments has closed its end.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// Statistics lines: prompt tokens, reused tokens, all of the line.
fn statistics(output: &Output) -> Vec<(usize, usize, String)> {
    let errors = text(&output.stderr);
    let lines = errors.lines().filter(|line| line.contains("prompt tokens"));
    let number = |line: &str, before: &str| -> usize {
        let head = line.split(before).next().unwrap();
        let digits = head.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap();
        digits.parse().unwrap()
    };
    lines
        .map(|line| {
            let counts = (number(line, " prompt tokens"), number(line, " reused"));
            (counts.0, counts.1, line.to_owned())
        })
        .collect()
}

fn engine(model: &Path) -> Engine {
    let model = Model::load(model, &LoadOptions::default()).unwrap();
    Engine::new(model, &EngineOptions::default()).unwrap()
}

fn render(model: &Path, messages: &[(&str, &str)]) -> String {
    let template = ChatTemplate::load(model).unwrap();
    let messages: Vec<Message> = messages.iter().map(|(r, c)| Message::new(*r, *c)).collect();
    let none = serde_json::Map::new();
    template.render(&messages, None, true, &none).unwrap()
}

fn answer(engine: &Engine, request: Request) -> Completion {
    let request = request.sampling(SamplingParams::greedy());
    engine
        .generate(request.max_new_tokens(40).keep_state(true))
        .unwrap()
}

#[test]
fn a_second_turn_reuses_the_first() {
    let args = ["--max-new-tokens", "40"];
    let output = chat(model(), &args, &[FIRST, "", SECOND, "/quit", "not read"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let found = statistics(&output);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[0].1, 0);

    // The same through the crate: the tokens of the first answer as they were drawn, then what is new.
    let engine = engine(model());
    let prompt = render(model(), &[("user", FIRST)]);
    let first = answer(&engine, Request::from_rendered(&prompt));
    let said = [
        ("user", FIRST),
        ("assistant", &first.text),
        ("user", SECOND),
    ];
    let next = render(model(), &said);
    let tokenizer = engine.tokenizer().unwrap();
    let drawn = tokenizer.decode(&first.tokens, false).unwrap();
    let new = next.strip_prefix(&(prompt.clone() + &drawn)).unwrap();
    let mut ids = tokenizer.encode(&prompt, false).unwrap();
    ids.extend(&first.tokens);
    ids.extend(tokenizer.encode(new, false).unwrap());
    let kept = first.kept.clone().unwrap();
    assert_eq!((found[1].0, found[1].1), (ids.len(), kept.tokens().len()));
    let second = answer(&engine, Request::from_ids(ids).continue_from(kept));
    let printed = text(&output.stdout);
    assert_eq!(printed, format!("{}\n{}\n", first.text, second.text));
}

#[test]
fn a_template_that_rewrites_answers_is_followed() {
    let folder = copy_of_model();
    let path = folder.path().join("chat_template.jinja");
    let source = std::fs::read_to_string(&path).unwrap();
    let shorter = source.replace("message.content", "message.content[:20]");
    assert_ne!(source, shorter);
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, shorter).unwrap();
    let args = ["--max-new-tokens", "40"];
    let output = chat(folder.path(), &args, &[FIRST, SECOND, "More."]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let found = statistics(&output);
    assert!(found[1].2.contains("(0 reused: diverged)"), "{found:?}");

    let engine = engine(folder.path());
    let prompt = render(folder.path(), &[("user", FIRST)]);
    let first = answer(&engine, Request::from_rendered(prompt));
    let said = [
        ("user", FIRST),
        ("assistant", &first.text),
        ("user", SECOND),
    ];
    let prompt = render(folder.path(), &said);
    let second = answer(&engine, Request::from_rendered(prompt));
    assert_eq!(found[1].0 as u64, second.usage.prompt_tokens);
    let printed = text(&output.stdout);
    assert!(printed.starts_with(&format!("{}\n", first.text)));

    // From there on, everything before the last answer is reused.
    let template = ChatTemplate::load(folder.path()).unwrap();
    let said = said.map(|(role, content)| Message::new(role, content));
    let none = serde_json::Map::new();
    let lasting = template.render(&said, None, false, &none).unwrap();
    let tokenizer = engine.tokenizer().unwrap();
    let lasting = tokenizer.encode(&lasting, false).unwrap().len();
    assert_eq!(found[2].1, lasting, "{found:?}");
}

#[test]
fn commands_and_a_system_message() {
    let lines = [FIRST, "/stats", "/reset", FIRST, "/help", "//quit"];
    let args = ["--max-new-tokens", "8", "--system", "Be brief."];
    let output = chat(model(), &args, &lines);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let found = statistics(&output);
    let plain = chat(model(), &["--max-new-tokens", "8"], &[FIRST]);
    assert!(found[0].0 > statistics(&plain)[0].0);
    assert_eq!((found[0].0, found[0].1), (found[1].0, found[1].1));
    assert!(found[2].1 > 0, "after `//quit`, a message: {found:?}");
    let printed = text(&output.stdout);
    assert!(printed.contains("1 turn, "), "{printed}");
    assert!(printed.contains("/reset  forget"), "{printed}");
    assert!(!printed.contains("> "), "{printed}");
}

#[test]
fn what_cannot_be_done_is_refused() {
    let refused = |args: &[&str], lines: &[&str], parts: &[&str]| {
        assert_refused(&chat(model(), args, lines), parts);
    };
    refused(&[], &["/undo"], &["/undo", "/help"]);
    let long = "word ".repeat(8000);
    refused(&[], &[&long], &["no room to generate"]);
    refused(
        &["--speculation", "mtp", "--max-drafts", "9"],
        &[],
        &["1 to 7"],
    );

    let bare = copy_of_model();
    std::fs::remove_file(bare.path().join("chat_template.jinja")).unwrap();
    let output = chat(bare.path(), &[], &[FIRST]);
    assert_refused(&output, &["no chat template", "chat_template.jinja"]);
    let mute = copy_of_model();
    std::fs::remove_file(mute.path().join("tokenizer.json")).unwrap();
    assert_refused(&chat(mute.path(), &[], &[FIRST]), &["tokenizer.json"]);
}

#[cfg(unix)]
#[test]
fn interruption_ends_the_answer_and_then_the_program() {
    let folder = copy_of_model();
    // No token ends an answer, so that it is long.
    let path = folder.path().join("genai_config.json");
    let config = std::fs::read_to_string(&path).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    *config.pointer_mut("/model/eos_token_id").unwrap() = 2041.into();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, config.to_string()).unwrap();

    let mut child = start(folder.path(), &["--max-new-tokens", "3500"]);
    let pid = child.id().to_string();
    let interrupt = || {
        let sent = Command::new("kill").args(["-INT", &pid]).status().unwrap();
        assert!(sent.success());
    };
    let mut input = child.stdin.take().unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut errors = child.stderr.take().unwrap();
    writeln!(input, "{FIRST}").unwrap();
    read_until(&mut output, "\n");
    interrupt();
    let first = read_until(&mut errors, "]\n");
    // The one that ended the answer counts no more once a line was typed: the next at the prompt only warns.
    writeln!(input, "/stats").unwrap();
    read_until(&mut output, "evicted; speculation");
    read_until(&mut output, "\n");
    interrupt();
    read_until(&mut errors, "(Ctrl-C again or Ctrl-D to leave)\n");
    writeln!(input, "{SECOND}").unwrap();
    read_until(&mut output, "\n");
    interrupt();
    let second = read_until(&mut errors, "]\n");
    drop(input);
    std::io::copy(&mut output, &mut std::io::sink()).unwrap();
    assert!(child.wait().unwrap().success());
    for line in [&first, &second] {
        assert!(line.contains(", cancelled"), "{line}");
    }
    assert!(first.contains("(0 reused)"), "{first}");
    assert!(!second.contains("(0 reused"), "{second}");
}

/// Reads up to some text.
fn read_until(stream: &mut impl Read, end: &str) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(end.as_bytes()) {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        bytes.extend(byte);
    }
    text(&bytes)
}

#[cfg(unix)]
#[test]
fn a_second_interruption_at_the_prompt_leaves() {
    let mut child = start(model(), &[]);
    let mut input = child.stdin.take().unwrap();
    let mut output = child.stdout.take().unwrap();
    writeln!(input, "/stats").unwrap();
    output.read_exact(&mut [0]).unwrap();
    let pid = child.id().to_string();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let status = loop {
        let _ = Command::new("kill").args(["-INT", &pid]).status().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(std::time::Instant::now() < deadline);
    };
    assert_eq!(status.code(), Some(130));
    drop(input);
}
