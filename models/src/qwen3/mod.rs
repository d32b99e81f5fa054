//! Qwen3: Llama's skeleton with a norm on every query and key head.

use crate::config::Config;
use crate::decoder::{AttentionNames, Dims, layer_types};
use crate::description::ModelDescription;
use crate::error::DescribeError;
use crate::llama::{ATTENTION, describe_with};
use crate::refuse::{self, Rule};
use crate::registry::{Architecture, Source};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    name: "qwen3",
    model_types: &["qwen3"],
    describe,
};

const RULES: &[Rule] = &[Rule::off("attn_output_gate")];

const QUERY_NORM: &str = "q_norm";
const KEY_NORM: &str = "k_norm";

/// What transformers takes where the file has no `head_dim`.
const HEAD_DIM: u64 = 128;

fn describe(source: &Source<'_>) -> Result<ModelDescription, DescribeError> {
    let config = &source.config;
    refuse::check(config, &[refuse::COMMON, RULES])?;
    let dims = Dims::read(config)?;
    refuse_sliding_window(config, &dims)?;
    let tensors = &source.checkpoint.tensors;
    let probe = tensors.get(&format!("model.layers.0.self_attn.{QUERY_NORM}.weight"));
    let fits = |head_dim| probe.is_some_and(|shape| shape == &[head_dim]);
    let head_dim = dims.head_dim(config, fits, Some(HEAD_DIM))?;
    let names = AttentionNames {
        query_norm: Some(QUERY_NORM),
        key_norm: Some(KEY_NORM),
        output: "o_proj",
    };
    describe_with(source, dims, head_dim, names)
}

/// A window may be declared as long as no layer uses it.
fn refuse_sliding_window(config: &Config<'_>, dims: &Dims) -> Result<(), DescribeError> {
    if layer_types(config, dims.layers, &[ATTENTION])?.is_some() {
        return Ok(());
    }
    let text = &config.text;
    let used = text.flag("use_sliding_window")?.unwrap_or(false);
    let first = text
        .integer("max_window_layers", 0..=u64::MAX)?
        .unwrap_or(28);
    let declared = text.get("sliding_window").is_some();
    if used && declared && first < dims.layers {
        let key = text.path("use_sliding_window");
        return Err(refuse::refuse(key, "nothing or false", "true".to_owned()));
    }
    Ok(())
}
