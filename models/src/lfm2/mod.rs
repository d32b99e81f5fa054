//! LFM2: gated short convolutions, with attention in some layers.

use std::collections::BTreeSet;

use crate::config::Config;
use crate::decoder::{
    AttentionNames, Body, Dims, PlainAttention, assemble, epsilon, kernel, layer_types, mlp,
    output, width,
};
use crate::description::{Layer, Mixer, ModelDescription, ShortConv};
use crate::error::DescribeError;
use crate::refuse::{self, Rule};
use crate::registry::{Architecture, Source};
use crate::rope::{RopeDefaults, rope};
use crate::tensors::Tensors;

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    name: "lfm2",
    model_types: &["lfm2"],
    describe,
};

const RULES: &[Rule] = &[
    Rule::off("conv_bias"),
    Rule::on("block_use_swiglu"),
    Rule::on("use_pos_enc"),
    Rule::off("sliding_window"),
    Rule::off("use_sliding_window"),
    Rule::off("attn_output_gate"),
];

const ROPE: RopeDefaults = RopeDefaults {
    theta: 1_000_000.0,
    partial_rotary_factor: None,
};

const ATTENTION: &str = "full_attention";
const CONV: &str = "conv";
const MLP: [&str; 3] = ["w1", "w3", "w2"];

/// What every layer needs to know of its model.
struct Plan {
    attention: PlainAttention,
    kernel: u64,
    intermediate: u64,
}

fn describe(source: &Source<'_>) -> Result<ModelDescription, DescribeError> {
    let config = &source.config;
    refuse::check(config, &[refuse::COMMON, RULES])?;
    let dims = Dims::read(config)?;
    let kinds = kinds(config, &dims)?;
    let mut tensors = Tensors::new(&source.checkpoint.tensors);
    tensors.own("model.");
    let plan = plan(config, dims, &tensors)?;
    let body = Body {
        embedding: tensors.weight(
            "model.embed_tokens.weight",
            &[dims.vocab_size, dims.hidden_size],
        ),
        layers: kinds
            .iter()
            .enumerate()
            .map(|(i, kind)| plan.layer(&mut tensors, i, kind))
            .collect(),
        final_norm: tensors.norm(
            "model.embedding_norm.weight",
            dims.hidden_size,
            plan.attention.epsilon,
        ),
        output: output(config, &mut tensors, &dims, true)?,
        mtp: None,
    };
    assemble(source, &dims, body, tensors, &[])
}

fn plan(config: &Config<'_>, dims: Dims, tensors: &Tensors<'_>) -> Result<Plan, DescribeError> {
    let head_dim = dims.head_dim(config, |_| false, None)?;
    let epsilon_key = match config.text.get("norm_eps") {
        Some(_) => "norm_eps",
        None => "block_norm_eps",
    };
    Ok(Plan {
        attention: PlainAttention {
            dims,
            head_dim,
            rope: rope(config, head_dim, dims.context_length, ROPE)?,
            epsilon: epsilon(config, epsilon_key, 1e-5)?,
            names: AttentionNames {
                query_norm: Some("q_layernorm"),
                key_norm: Some("k_layernorm"),
                output: "out_proj",
            },
        },
        kernel: kernel(config, "conv_L_cache")?,
        intermediate: intermediate(config, tensors)?,
    })
}

impl Plan {
    fn layer(&self, tensors: &mut Tensors<'_>, index: usize, kind: &'static str) -> Layer {
        let at = format!("model.layers.{index}.");
        let hidden = self.attention.dims.hidden_size;
        let epsilon = self.attention.epsilon;
        let mixer_norm = tensors.norm(format!("{at}operator_norm.weight"), hidden, epsilon);
        let mixer = if kind == ATTENTION {
            Mixer::Attention(self.attention.describe(tensors, &format!("{at}self_attn.")))
        } else {
            Mixer::ShortConv(self.short_conv(tensors, &format!("{at}conv.")))
        };
        Layer {
            kind,
            mixer_norm,
            mixer,
            mlp_norm: tensors.norm(format!("{at}ffn_norm.weight"), hidden, epsilon),
            mlp: mlp(
                tensors,
                &format!("{at}feed_forward."),
                MLP,
                hidden,
                self.intermediate,
            ),
        }
    }

    fn short_conv(&self, tensors: &mut Tensors<'_>, prefix: &str) -> ShortConv {
        let channels = self.attention.dims.hidden_size;
        ShortConv {
            channels,
            kernel: self.kernel,
            input: tensors.weight(format!("{prefix}in_proj.weight"), &[3 * channels, channels]),
            conv: tensors.convolution(format!("{prefix}conv.weight"), channels, self.kernel),
            output: tensors.weight(format!("{prefix}out_proj.weight"), &[channels, channels]),
        }
    }
}

/// `layer_types`, or what older files say with `full_attn_idxs` (without that, attention everywhere).
fn kinds(config: &Config<'_>, dims: &Dims) -> Result<Vec<&'static str>, DescribeError> {
    const KEY: &str = "full_attn_idxs";
    if let Some(kinds) = layer_types(config, dims.layers, &[ATTENTION, CONV])? {
        return Ok(kinds);
    }
    let text = &config.text;
    let Some(items) = text.list(KEY)? else {
        return Ok((0..dims.layers).map(|_| ATTENTION).collect());
    };
    let expected = || {
        text.error(
            KEY,
            format!("a list of layers, each from 0 to {}", dims.layers - 1),
        )
    };
    let attention = items
        .iter()
        .map(|item| {
            item.as_u64()
                .filter(|i| *i < dims.layers)
                .ok_or_else(expected)
        })
        .collect::<Result<BTreeSet<u64>, _>>()?;
    let kind = |i: u64| {
        if attention.contains(&i) {
            ATTENTION
        } else {
            CONV
        }
    };
    Ok((0..dims.layers).map(kind).collect())
}

/// Width of the MLP. Some files give the width before an adjustment, some after it: the checkpoint decides.
fn intermediate(config: &Config<'_>, tensors: &Tensors<'_>) -> Result<u64, DescribeError> {
    let text = &config.text;
    let key = if text.get("block_ff_dim").is_some() {
        "block_ff_dim"
    } else {
        "intermediate_size"
    };
    let declared = width(config, key)?;
    let adjusts = text.flag("block_auto_adjust_ff_dim")?.unwrap_or(true);
    let held = tensors.shape("model.layers.0.feed_forward.w1.weight");
    if !adjusts || held.and_then(<[u64]>::first) == Some(&declared) {
        return Ok(declared);
    }
    adjusted(config, declared)
}

/// Two thirds of the declared width, times a factor, rounded up to a multiple.
fn adjusted(config: &Config<'_>, declared: u64) -> Result<u64, DescribeError> {
    let text = &config.text;
    let factor = text.positive("block_ffn_dim_multiplier")?.unwrap_or(1.0);
    let multiple = text.integer("block_multiple_of", 1..=1 << 24)?;
    let multiple = multiple.unwrap_or(256);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the rule truncates; the product is positive and the cast saturates"
    )]
    let scaled = (factor * (declared * 2 / 3) as f64) as u64;
    Ok(scaled.div_ceil(multiple).saturating_mul(multiple))
}
