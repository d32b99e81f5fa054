//! Llama, and the skeleton it shares with its relatives: attention and a gated MLP in every layer.

use crate::decoder::{
    AttentionNames, Body, Dims, MLP_NAMES, PlainAttention, assemble, epsilon, layer_types, mlp,
    output, width,
};
use crate::description::{Layer, Mixer, ModelDescription};
use crate::error::DescribeError;
use crate::refuse::{self, Rule};
use crate::registry::{Architecture, Source};
use crate::rope::{RopeDefaults, rope};
use crate::tensors::Tensors;

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    name: "llama",
    model_types: &["llama"],
    describe,
};

/// The only layer type of this family.
pub(crate) const ATTENTION: &str = "full_attention";

const RULES: &[Rule] = &[
    Rule::off("sliding_window"),
    Rule::off("use_sliding_window"),
    Rule::off("use_qk_norm"),
    Rule::off("attn_output_gate"),
];

const ROPE: RopeDefaults = RopeDefaults {
    theta: 10_000.0,
    partial_rotary_factor: None,
};

fn describe(source: &Source<'_>) -> Result<ModelDescription, DescribeError> {
    let config = &source.config;
    refuse::check(config, &[refuse::COMMON, RULES])?;
    let names = AttentionNames {
        query_norm: None,
        key_norm: None,
        output: "o_proj",
    };
    let dims = Dims::read(config)?;
    layer_types(config, dims.layers, &[ATTENTION])?;
    let head_dim = dims.head_dim(config, |_| false, None)?;
    describe_with(source, dims, head_dim, names)
}

/// A model whose every layer is plain attention and a gated MLP under Llama's names.
pub(crate) fn describe_with(
    source: &Source<'_>,
    dims: Dims,
    head_dim: u64,
    names: AttentionNames,
) -> Result<ModelDescription, DescribeError> {
    let config = &source.config;
    let epsilon = epsilon(config, "rms_norm_eps", 1e-6)?;
    let attention = PlainAttention {
        dims,
        head_dim,
        rope: rope(config, head_dim, dims.context_length, ROPE)?,
        epsilon,
        names,
    };
    let intermediate = width(config, "intermediate_size")?;
    let mut tensors = Tensors::new(&source.checkpoint.tensors);
    tensors.own("model.");
    let body = Body {
        embedding: tensors.weight(
            "model.embed_tokens.weight",
            &[dims.vocab_size, dims.hidden_size],
        ),
        layers: (0..dims.layers)
            .map(|i| layer(&mut tensors, &attention, i, intermediate))
            .collect(),
        final_norm: tensors.norm("model.norm.weight", dims.hidden_size, epsilon),
        output: output(config, &mut tensors, &dims, false)?,
        mtp: None,
    };
    assemble(source, &dims, body, tensors, &[])
}

fn layer(
    tensors: &mut Tensors<'_>,
    attention: &PlainAttention,
    index: u64,
    intermediate: u64,
) -> Layer {
    let at = format!("model.layers.{index}.");
    let hidden = attention.dims.hidden_size;
    Layer {
        kind: ATTENTION,
        mixer_norm: tensors.norm(
            format!("{at}input_layernorm.weight"),
            hidden,
            attention.epsilon,
        ),
        mixer: Mixer::Attention(attention.describe(tensors, &format!("{at}self_attn."))),
        mlp_norm: tensors.norm(
            format!("{at}post_attention_layernorm.weight"),
            hidden,
            attention.epsilon,
        ),
        mlp: mlp(
            tensors,
            &format!("{at}mlp."),
            MLP_NAMES,
            hidden,
            intermediate,
        ),
    }
}
