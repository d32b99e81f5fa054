//! Token ids with a role.

use serde_json::Value;

use crate::config::{Config, GENERATION, Section};
use crate::description::SpecialTokens;
use crate::error::DescribeError;
use crate::limits::MAX_END_TOKENS;

/// Reads the token ids with a role. A role that `generation_config.json` fills is taken from there alone (as
/// transformers does when it generates), any other from `config.json`.
pub(crate) fn special_tokens(
    config: &Config<'_>,
    generation: Option<&Value>,
    vocab_size: u64,
) -> Result<SpecialTokens, DescribeError> {
    let generation = generation
        .map(|value| Section::root(GENERATION, value))
        .transpose()?;
    let first = |key: &str| {
        let mut sections = generation.iter().chain(config.sections());
        sections.find(|section| section.get(key).is_some())
    };
    let one = |key: &str| match first(key) {
        Some(section) => one_id(section, key, vocab_size),
        None => Ok(None),
    };
    Ok(SpecialTokens {
        bos: one("bos_token_id")?,
        eos: match first("eos_token_id") {
            Some(section) => all_ids(section, "eos_token_id", vocab_size)?,
            None => Vec::new(),
        },
        pad: one("pad_token_id")?,
    })
}

fn one_id(section: &Section<'_>, key: &str, vocab_size: u64) -> Result<Option<u32>, DescribeError> {
    let Some(value) = section.get(key) else {
        return Ok(None);
    };
    // Old files write -1 where they mean none.
    if value.as_i64() == Some(-1) {
        return Ok(None);
    }
    let id = token_id(value, vocab_size);
    id.map(Some)
        .ok_or_else(|| section.error(key, expectation(vocab_size)))
}

fn all_ids(section: &Section<'_>, key: &str, vocab_size: u64) -> Result<Vec<u32>, DescribeError> {
    let Some(Value::Array(items)) = section.get(key) else {
        return Ok(one_id(section, key, vocab_size)?.into_iter().collect());
    };
    if items.len() > MAX_END_TOKENS {
        let expected = format!("at most {MAX_END_TOKENS} ids");
        return Err(section.error_at(key, expected, format!("{} entries", items.len())));
    }
    let mut ids = Vec::with_capacity(items.len());
    for item in items {
        let id = token_id(item, vocab_size).ok_or_else(|| {
            section.error(
                key,
                format!("a list of ids, each {}", expectation(vocab_size)),
            )
        })?;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    Ok(ids)
}

fn token_id(value: &Value, vocab_size: u64) -> Option<u32> {
    let id = value.as_u64().filter(|id| *id < vocab_size)?;
    u32::try_from(id).ok()
}

fn expectation(vocab_size: u64) -> String {
    format!("an integer from 0 to {}", vocab_size.saturating_sub(1))
}
