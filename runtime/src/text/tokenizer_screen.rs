//! What a `tokenizer.json` may ask for, checked before the tokenizer's own code sees it.
//!
//! That code does what the file says, however much it is: a chain of replacements that each double a text, a pattern
//! that is compiled into a program of any size. Time is bounded when it runs; what would take the memory of the machine
//! is refused here.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::Value;

use crate::limits::{
    PATTERN_BYTES, PATTERN_REPEATS, TOKENIZER_GROWTH, TOKENIZER_REPLACEMENT, TOKENIZER_STEPS,
};

/// The parts of the file that say what is done to a text. The vocabulary is skipped.
#[derive(Debug, Deserialize)]
struct Pipeline {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
}

/// Refuses a file that asks for too much; says what and where.
pub(super) fn screen(bytes: &[u8]) -> Result<(), String> {
    // As text: of bytes, what is skipped would not be looked at.
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let pipeline: Pipeline = serde_json::from_str(text).map_err(|error| error.to_string())?;
    for (section, parts) in [
        ("normalizer", vec![&pipeline.normalizer]),
        (
            "pre_tokenizer",
            vec![&pipeline.normalizer, &pipeline.pre_tokenizer],
        ),
        ("post_processor", vec![&pipeline.post_processor]),
        ("decoder", vec![&pipeline.decoder]),
    ] {
        let mut seen = Seen {
            steps: 0,
            growth: 1,
        };
        let mut parts = parts.into_iter();
        parts
            .try_for_each(|part| seen.visit(part))
            .map_err(|problem| format!("{section}: {problem}"))?;
    }
    Ok(())
}

/// What has been seen of a section.
struct Seen {
    steps: usize,
    /// How many times longer a text can become.
    growth: u64,
}

impl Seen {
    fn visit(&mut self, value: &Value) -> Result<(), String> {
        match value {
            Value::Array(items) => items.iter().try_for_each(|item| self.visit(item)),
            Value::Object(map) => {
                if let Some(Value::String(pattern)) = map.get("Regex") {
                    check_pattern(pattern)?;
                }
                if let Some(kind) = map.get("type").and_then(Value::as_str) {
                    self.step(kind, value)?;
                }
                map.values().try_for_each(|item| self.visit(item))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    fn step(&mut self, kind: &str, step: &Value) -> Result<(), String> {
        self.steps += 1;
        if self.steps > TOKENIZER_STEPS {
            return Err(format!("more than {TOKENIZER_STEPS} steps"));
        }
        let growth = match kind {
            "Replace" => replacement(step),
            "Precompiled" => precompiled(step)?,
            "Metaspace" | "BertNormalizer" => 3,
            "ByteLevel" | "Lowercase" => 2,
            _ => 1,
        };
        self.growth = self.growth.saturating_mul(growth);
        if self.growth > TOKENIZER_GROWTH {
            return Err(format!(
                "its steps can make a text more than {TOKENIZER_GROWTH} times longer"
            ));
        }
        Ok(())
    }
}

/// How many times longer a replacement makes a text.
fn replacement(step: &Value) -> u64 {
    let length = |text: Option<&Value>| text.and_then(Value::as_str).map_or(0, str::len);
    let content = length(step.get("content"));
    let plain = length(
        step.get("pattern")
            .and_then(|pattern| pattern.get("String")),
    );
    let growth = match plain {
        // A pattern may match between any two characters.
        0 => content.saturating_add(1),
        plain => content.div_ceil(plain),
    };
    u64::try_from(growth.max(1)).unwrap_or(u64::MAX)
}

/// A table of replacements in the format of SentencePiece: the length of a trie, the trie, and texts that end in zeros.
fn precompiled(step: &Value) -> Result<u64, String> {
    let map = step.get("precompiled_charsmap").and_then(Value::as_str);
    let table = BASE64_STANDARD
        .decode(map.unwrap_or_default())
        .map_err(|error| format!("precompiled_charsmap: {error}"))?;
    let Some((length, rest)) = table.split_first_chunk::<4>() else {
        return Ok(1);
    };
    let trie = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    let texts = rest
        .get(trie..)
        .ok_or("precompiled_charsmap: it is shorter than it says")?;
    let longest = texts.split(|byte| *byte == 0).map(<[u8]>::len).max();
    match longest {
        Some(longest) if longest > TOKENIZER_REPLACEMENT => Err(format!(
            "precompiled_charsmap: a replacement of {longest} bytes, at most {TOKENIZER_REPLACEMENT} are taken"
        )),
        // Few characters have a long replacement.
        _ => Ok(4),
    }
}

fn check_pattern(pattern: &str) -> Result<(), String> {
    if pattern.len() > PATTERN_BYTES {
        return Err(format!(
            "a pattern of {} bytes, at most {PATTERN_BYTES} are taken",
            pattern.len()
        ));
    }
    let counts = pattern.split('{').skip(1).filter_map(|rest| {
        let (counts, _) = rest.split_once('}')?;
        let largest = counts.split(',').map(|count| count.trim().parse::<u64>());
        largest.flatten().max()
    });
    let product = counts.fold(1u64, |product, count| product.saturating_mul(count.max(1)));
    if product > PATTERN_REPEATS {
        return Err(format!(
            "a pattern whose counted repetitions multiply to {product}, at most {PATTERN_REPEATS} are taken"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
        for file in [
            json!({"normalizer": {"type": "Sequence", "normalizers":
                [{"type": "Prepend", "prepend": "▁"}, spaces]}, "model": {"vocab": {}}}),
            json!({"normalizer": {"type": "NFC"}, "decoder": bytes,
                "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, bytes]}}),
            json!({"normalizer": null}),
        ] {
            assert_eq!(refusal(&file), None, "{file}");
        }
    }

    #[test]
    fn what_would_take_the_memory_of_the_machine_is_refused() {
        let chain =
            |step: Value, count| json!({"type": "Sequence", "normalizers": vec![step; count]});
        let bytes = json!({"type": "ByteLevel"});
        let table = |text: usize| {
            let table = [vec![0; 4], vec![b'a'; text], vec![0]].concat();
            json!({"type": "Precompiled", "precompiled_charsmap": BASE64_STANDARD.encode(table)})
        };
        let regex = |pattern: String| json!({"type": "Split", "pattern": {"Regex": pattern}});
        for (section, step, words) in [
            ("normalizer", chain(double(), 7), "times longer"),
            ("normalizer", chain(bytes, 20), "times longer"),
            ("decoder", chain(double(), 40), "times longer"),
            ("normalizer", chain(json!({"type": "NFC"}), 65), "steps"),
            ("normalizer", table(100_000), "100000 bytes"),
            (
                "pre_tokenizer",
                regex("a{1000}{1000}".to_owned()),
                "1000000",
            ),
            ("pre_tokenizer", regex("a".repeat(20_000)), "20000 bytes"),
        ] {
            let message = refusal(&json!({section: step})).unwrap_or_default();
            assert!(
                message.starts_with(section) && message.contains(words),
                "{words}: {message}"
            );
        }
        assert_eq!(refusal(&json!({"normalizer": chain(double(), 6)})), None);
        assert_eq!(refusal(&json!({"normalizer": table(30)})), None);
    }
}
