//! Settings that change what a model computes and that no description can express.

use serde_json::Value;

use crate::config::{Config, show};
use crate::error::{DescribeError, Refusal};

/// One setting and the values of it that are supported. A key that is absent or null is always supported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    key: &'static str,
    expected: &'static str,
    supported: fn(&Value) -> bool,
}

impl Rule {
    /// The feature has to be off: `false`, zero or empty.
    pub(crate) const fn off(key: &'static str) -> Self {
        Self {
            key,
            expected: "nothing, false, 0 or an empty value",
            supported: is_off,
        }
    }

    /// The feature has to be on.
    pub(crate) const fn on(key: &'static str) -> Self {
        Self {
            key,
            expected: "nothing or true",
            supported: |value| value == &Value::Bool(true),
        }
    }

    /// A factor has to be 1.
    pub(crate) const fn one(key: &'static str) -> Self {
        Self {
            key,
            expected: "nothing or 1",
            supported: |value| value.as_f64() == Some(1.0),
        }
    }

    /// Only SiLU is supported.
    pub(crate) const fn silu(key: &'static str) -> Self {
        Self {
            key,
            expected: "\"silu\"",
            supported: |value| matches!(value.as_str(), Some("silu" | "swish")),
        }
    }
}

fn is_off(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// What every architecture here refuses.
pub(crate) const COMMON: &[Rule] = &[
    Rule::silu("hidden_act"),
    Rule::silu("hidden_activation"),
    Rule::off("quantization_config"),
    Rule::off("quantization"),
    Rule::off("compression_config"),
    Rule::off("per_layer_config"),
    Rule::off("attention_bias"),
    Rule::off("qkv_bias"),
    Rule::off("mlp_bias"),
    Rule::off("use_bias"),
    Rule::off("lm_head_bias"),
    Rule::off("attn_logit_softcapping"),
    Rule::off("final_logit_softcapping"),
    Rule::off("attention_chunk_size"),
    Rule::off("num_experts"),
    Rule::off("num_local_experts"),
    Rule::off("n_routed_experts"),
    Rule::off("kv_lora_rank"),
    Rule::off("use_parallel_residual"),
    Rule::off("alibi"),
    Rule::off("is_encoder_decoder"),
    Rule::off("add_cross_attention"),
    Rule::off("cross_attention_layers"),
    Rule::off("no_rope_layers"),
    Rule::one("embedding_multiplier"),
    Rule::one("residual_multiplier"),
    Rule::one("logits_scaling"),
];

/// Checks the language model's settings and the ones around them.
pub(crate) fn check(config: &Config<'_>, rules: &[&[Rule]]) -> Result<(), DescribeError> {
    let mut refusals = Vec::new();
    for section in config.sections() {
        for rule in rules.iter().copied().flatten() {
            let Some(value) = section.get(rule.key) else {
                continue;
            };
            if !(rule.supported)(value) {
                refusals.push(Refusal {
                    key: section.path(rule.key),
                    expected: rule.expected.to_owned(),
                    found: show(Some(value)),
                });
            }
        }
    }
    if refusals.is_empty() {
        return Ok(());
    }
    Err(DescribeError::Unsupported { refusals })
}

/// One refused setting.
pub(crate) fn refuse(key: String, expected: impl Into<String>, found: String) -> DescribeError {
    DescribeError::Unsupported {
        refusals: vec![Refusal {
            key,
            expected: expected.into(),
            found,
        }],
    }
}
