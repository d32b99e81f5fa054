//! Chat templates: compiling and rendering.

use pawl::{ChatTemplate, Message};
use serde_json::{Map, Value, json};

/// Longest prompt that a template may make, in bytes.
const LONGEST: usize = 64 << 20;

/// Compiles a template, up to a zero byte, and renders it over the messages after it (a JSON list of objects), or over a
/// chat with every role and a tool.
///
/// # Panics
/// When a prompt is longer than it may be. Time and memory are for who runs this to bound.
pub fn chat_template(text: &[u8]) {
    let mut parts = text.splitn(2, |&byte| byte == 0);
    let Some(Ok(source)) = parts.next().map(std::str::from_utf8) else {
        return;
    };
    let Ok(template) = ChatTemplate::from_source(source) else {
        return;
    };
    let given = parts
        .next()
        .and_then(|text| serde_json::from_slice(text).ok());
    let messages = given.unwrap_or_else(conversation);
    let tools = tools();
    for (tools, generation) in [(None, true), (Some(tools.as_slice()), false)] {
        match template.render(&messages, tools, generation, &Map::new()) {
            Ok(prompt) => assert!(prompt.len() <= LONGEST, "{} bytes", prompt.len()),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

fn conversation() -> Vec<Message> {
    let call = json!([{"type": "function", "id": "call-1",
        "function": {"name": "add", "arguments": {"a": 1, "b": [2.5, null, true]}}}]);
    vec![
        Message::new("system", "Be brief."),
        Message::new("user", json!([{"type": "text", "text": "1 + 2.5?"}])),
        Message::new("assistant", Value::Null).with("tool_calls", call),
        Message::new("tool", "3.5").with("tool_call_id", "call-1"),
        Message::new("assistant", "<think>\neasy\n</think>\n\n3.5"),
        Message::new("user", "Da\u{df} war's \u{1f980}"),
    ]
}

fn tools() -> Vec<Value> {
    vec![json!({"type": "function", "function": {
        "name": "add", "description": "Adds.",
        "parameters": {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]},
    }})]
}
