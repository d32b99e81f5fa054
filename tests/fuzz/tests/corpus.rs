//! Every committed input through its target. The other targets' are replayed where those live.

#![allow(
    clippy::unwrap_used,
    reason = "a case stops where its expectations fail"
)]

use std::path::Path;

fn replay(target: &str, run: fn(&[u8])) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let inputs = std::fs::read_dir(root.join("corpus").join(target)).unwrap();
    let count = inputs
        .map(|input| run(&std::fs::read(input.unwrap().path()).unwrap()))
        .count();
    assert!(count >= 8, "{count} inputs of {target}");
}

#[test]
fn chat_template() {
    replay("chat_template", pawl_fuzz::chat_template);
}

#[test]
fn genai_config() {
    replay("genai_config", pawl_fuzz::genai_config);
}
