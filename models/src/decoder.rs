//! What the architectures here have in common: dimensions, plain attention, gated MLP, layer types, tying.

use crate::config::{Config, show};
use crate::description::{Attention, Layer, Mlp, ModelDescription, MtpHead, Norm, Rope, Weight};
use crate::error::DescribeError;
use crate::limits::{
    MAX_EPSILON, MAX_HEAD_DIM, MAX_HEADS, MAX_KERNEL, MAX_LAYERS, MAX_TOKENS, MAX_WIDTH,
};
use crate::registry::Source;
use crate::tensors::{Skip, Tensors};
use crate::tokens::special_tokens;

/// Sizes every architecture has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dims {
    pub(crate) vocab_size: u64,
    pub(crate) hidden_size: u64,
    pub(crate) context_length: u64,
    pub(crate) layers: u64,
    pub(crate) heads: u64,
    pub(crate) kv_heads: u64,
}

impl Dims {
    pub(crate) fn read(config: &Config<'_>) -> Result<Self, DescribeError> {
        let text = &config.text;
        let heads = text.required_integer("num_attention_heads", 1..=MAX_HEADS)?;
        let kv_heads = text
            .integer("num_key_value_heads", 1..=MAX_HEADS)?
            .unwrap_or(heads);
        if !heads.is_multiple_of(kv_heads) {
            let expected = format!("a divisor of num_attention_heads ({heads})");
            return Err(text.error("num_key_value_heads", expected));
        }
        Ok(Self {
            vocab_size: text.required_integer("vocab_size", 1..=MAX_TOKENS)?,
            hidden_size: text.required_integer("hidden_size", 1..=MAX_WIDTH)?,
            context_length: text.required_integer("max_position_embeddings", 1..=MAX_TOKENS)?,
            layers: text.required_integer("num_hidden_layers", 1..=MAX_LAYERS)?,
            heads,
            kv_heads,
        })
    }

    /// `head_dim`, or where the file has none the first of `defaults` whose head norm the checkpoint holds, or
    /// `hidden_size / heads`.
    pub(crate) fn head_dim(
        &self,
        config: &Config<'_>,
        fits: impl Fn(u64) -> bool,
        default: Option<u64>,
    ) -> Result<u64, DescribeError> {
        let text = &config.text;
        if let Some(head_dim) = text.integer("head_dim", 1..=MAX_HEAD_DIM)? {
            return Ok(head_dim);
        }
        let share = self
            .hidden_size
            .is_multiple_of(self.heads)
            .then_some(self.hidden_size / self.heads);
        let mut candidates = default.into_iter().chain(share);
        candidates
            .find(|candidate| fits(*candidate))
            .or(share)
            .or(default)
            .ok_or_else(|| {
                let expected = format!(
                    "an integer, as hidden_size ({}) is not a multiple of num_attention_heads ({})",
                    self.hidden_size, self.heads
                );
                text.error("head_dim", expected)
            })
    }
}

/// A width of the model, such as `intermediate_size`.
pub(crate) fn width(config: &Config<'_>, key: &str) -> Result<u64, DescribeError> {
    config.text.required_integer(key, 1..=MAX_WIDTH)
}

/// A number of heads.
pub(crate) fn head_count(config: &Config<'_>, key: &str) -> Result<u64, DescribeError> {
    config.text.required_integer(key, 1..=MAX_HEADS)
}

/// Elements of a head.
pub(crate) fn head_size(config: &Config<'_>, key: &str) -> Result<u64, DescribeError> {
    config.text.required_integer(key, 1..=MAX_HEAD_DIM)
}

/// Taps of a convolution: with fewer than two there is no state, which no graph here can express.
pub(crate) fn kernel(config: &Config<'_>, key: &str) -> Result<u64, DescribeError> {
    config.text.required_integer(key, 2..=MAX_KERNEL)
}

/// The epsilon of the norms.
pub(crate) fn epsilon(config: &Config<'_>, key: &str, default: f64) -> Result<f32, DescribeError> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "norms are computed in float32"
    )]
    let epsilon = config.text.positive(key)?.unwrap_or(default) as f32;
    if epsilon > 0.0 && epsilon <= MAX_EPSILON {
        return Ok(epsilon);
    }
    let expected = format!("a number from the smallest of float32 to {MAX_EPSILON}");
    Err(config.text.error(key, expected))
}

/// `layer_types`: one of `known` for each layer; `None` where the file has no such list.
pub(crate) fn layer_types(
    config: &Config<'_>,
    layers: u64,
    known: &[&'static str],
) -> Result<Option<Vec<&'static str>>, DescribeError> {
    const KEY: &str = "layer_types";
    let text = &config.text;
    let Some(items) = text.list(KEY)? else {
        return Ok(None);
    };
    if items.len() as u64 != layers {
        return Err(text.error_at(
            KEY,
            format!("{layers} entries, one per layer (num_hidden_layers)"),
            format!("{} entries", items.len()),
        ));
    }
    let kind = |(layer, item): (usize, &serde_json::Value)| {
        let name = item.as_str();
        let kind = known.iter().copied().find(|kind| name == Some(*kind));
        kind.ok_or_else(|| {
            let key = format!("{KEY}[{layer}]");
            text.error_at(
                &key,
                format!("one of {}", known.join(", ")),
                show(Some(item)),
            )
        })
    };
    items
        .iter()
        .enumerate()
        .map(kind)
        .collect::<Result<Vec<_>, _>>()
        .map(Some)
}

/// The output projection. What the checkpoint holds decides; the flag only says whether it may be absent.
pub(crate) fn output(
    config: &Config<'_>,
    tensors: &mut Tensors<'_>,
    dims: &Dims,
    tied_by_default: bool,
) -> Result<Option<Weight>, DescribeError> {
    const NAME: &str = "lm_head.weight";
    let mut flags = Vec::new();
    for key in ["tie_word_embeddings", "tie_embedding"] {
        for section in config.sections() {
            flags.extend(section.flag(key)?);
        }
    }
    let tied = if flags.is_empty() {
        tied_by_default
    } else {
        flags.contains(&true)
    };
    if tied && !tensors.contains(NAME) {
        return Ok(None);
    }
    let note = "config.json: tie_word_embeddings does not let the embedding stand in for it";
    let shape = [dims.vocab_size, dims.hidden_size];
    Ok(Some(tensors.weight_because(NAME, &shape, note)))
}

/// The parts of a model around its dimensions.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    pub(crate) embedding: Weight,
    pub(crate) layers: Vec<Layer>,
    pub(crate) final_norm: Norm,
    pub(crate) output: Option<Weight>,
    pub(crate) mtp: Option<MtpHead>,
}

/// Puts a description together, unless a tensor did not fit.
pub(crate) fn assemble(
    source: &Source<'_>,
    dims: &Dims,
    body: Body,
    tensors: Tensors<'_>,
    skips: &[Skip],
) -> Result<ModelDescription, DescribeError> {
    let generation = source.checkpoint.generation_config.as_ref();
    Ok(ModelDescription {
        model_type: source.model_type.to_owned(),
        architecture: source.architecture,
        vocab_size: dims.vocab_size,
        hidden_size: dims.hidden_size,
        context_length: dims.context_length,
        tokens: special_tokens(&source.config, generation, dims.vocab_size)?,
        embedding: body.embedding,
        layers: body.layers,
        final_norm: body.final_norm,
        output: body.output,
        mtp: body.mtp,
        skipped: tensors.finish(skips)?,
    })
}

/// Names of the parts of plain attention.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionNames {
    pub(crate) query_norm: Option<&'static str>,
    pub(crate) key_norm: Option<&'static str>,
    pub(crate) output: &'static str,
}

/// What plain attention needs to know of its model.
#[derive(Clone, Debug)]
pub(crate) struct PlainAttention {
    pub(crate) dims: Dims,
    pub(crate) head_dim: u64,
    pub(crate) rope: Rope,
    pub(crate) epsilon: f32,
    pub(crate) names: AttentionNames,
}

impl PlainAttention {
    /// Attention without a gate whose tensors start with `prefix`.
    pub(crate) fn describe(&self, tensors: &mut Tensors<'_>, prefix: &str) -> Attention {
        let Dims {
            hidden_size,
            heads,
            kv_heads,
            ..
        } = self.dims;
        let (queries, keys) = (heads * self.head_dim, kv_heads * self.head_dim);
        let mut norm = |name: Option<&str>| {
            name.map(|name| {
                tensors.norm(
                    format!("{prefix}{name}.weight"),
                    self.head_dim,
                    self.epsilon,
                )
            })
        };
        let (query_norm, key_norm) = (norm(self.names.query_norm), norm(self.names.key_norm));
        let mut weight =
            |name: &str, shape: [u64; 2]| tensors.weight(format!("{prefix}{name}.weight"), &shape);
        Attention {
            heads,
            kv_heads,
            head_dim: self.head_dim,
            scale: attention_scale(self.head_dim),
            query: weight("q_proj", [queries, hidden_size]),
            key: weight("k_proj", [keys, hidden_size]),
            value: weight("v_proj", [keys, hidden_size]),
            gate: None,
            query_norm,
            key_norm,
            rope: self.rope.clone(),
            output: weight(self.names.output, [hidden_size, queries]),
        }
    }
}

/// `head_dim ^ -0.5`.
pub(crate) fn attention_scale(head_dim: u64) -> f32 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "attention is computed in float32"
    )]
    let scale = (head_dim as f64).powf(-0.5) as f32;
    scale
}

/// A gated MLP whose tensors start with `prefix`; `names` are gate, up and down.
pub(crate) fn mlp(
    tensors: &mut Tensors<'_>,
    prefix: &str,
    names: [&str; 3],
    hidden_size: u64,
    intermediate: u64,
) -> Mlp {
    let [gate, up, down] = names.map(|name| format!("{prefix}{name}.weight"));
    Mlp {
        gate: tensors.weight(gate, &[intermediate, hidden_size]),
        up: tensors.weight(up, &[intermediate, hidden_size]),
        down: tensors.weight(down, &[hidden_size, intermediate]),
    }
}

/// Names of gate, up and down in most checkpoints.
pub(crate) const MLP_NAMES: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];
