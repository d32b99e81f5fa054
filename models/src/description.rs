//! What a model computes, as data: the layer plan, its dimensions and where every weight lives in the checkpoint.
//!
//! All weights are described in the layout Hugging Face uses: `[out, in]` for projections. Sizes count elements.

#![expect(
    clippy::exhaustive_structs,
    clippy::exhaustive_enums,
    reason = "plain data of one workspace: readers build and take it apart, and a new part must reach every one of them"
)]

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::DescribeError;

/// Everything [`describe`](crate::describe) looks at: the settings files and the tensor headers of a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckpointInfo {
    /// `config.json`.
    pub config: serde_json::Value,
    /// `generation_config.json`, where the checkpoint has one.
    pub generation_config: Option<serde_json::Value>,
    /// Name and shape of every tensor of the checkpoint.
    pub tensors: BTreeMap<String, Vec<u64>>,
}

/// A whole language model: token embedding, layers, final norm, output projection and an optional drafting head.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelDescription {
    /// `model_type` of the language model in `config.json` (of `text_config`, where that holds it).
    pub model_type: String,
    /// Name of the registry entry that described it.
    pub architecture: &'static str,
    /// Rows of the embedding and of the output projection.
    pub vocab_size: u64,
    /// Width of the residual stream.
    pub hidden_size: u64,
    /// Longest sequence, in tokens, that `config.json` promises (`max_position_embeddings`).
    pub context_length: u64,
    /// Token ids with a role.
    pub tokens: SpecialTokens,
    /// Token embedding, `[vocab_size, hidden_size]`.
    pub embedding: Weight,
    /// The layers, first to last.
    pub layers: Vec<Layer>,
    /// Norm after the last layer, `[hidden_size]`.
    pub final_norm: Norm,
    /// Output projection, `[vocab_size, hidden_size]`; `None` when the embedding serves as one (tied).
    pub output: Option<Weight>,
    /// Multi-token-prediction head, where the checkpoint has one.
    pub mtp: Option<MtpHead>,
    /// Tensors of the checkpoint that this description does not use, grouped by prefix.
    pub skipped: Vec<Skipped>,
}

/// Token ids with a role; the ids are below `vocab_size`.
///
/// A role that `generation_config.json` fills is taken from there alone, as transformers does when it generates;
/// any other comes from `config.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Beginning of text.
    pub bos: Option<u32>,
    /// Every id that ends generation, in the order of the file, without repeats.
    pub eos: Vec<u32>,
    /// Padding.
    pub pad: Option<u32>,
}

/// One pre-norm layer: `x += mixer(mixer_norm(x)); x += mlp(mlp_norm(x))`.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// The layer type as the checkpoint spells it, for example `full_attention`.
    pub kind: &'static str,
    /// Norm before the mixer, `[hidden_size]`.
    pub mixer_norm: Norm,
    /// What mixes tokens of different positions.
    pub mixer: Mixer,
    /// Norm before the MLP, `[hidden_size]`.
    pub mlp_norm: Norm,
    /// The MLP.
    pub mlp: Mlp,
}

/// What mixes tokens of different positions in a layer.
///
/// Exhaustive: whoever emits a graph has to handle every kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Mixer {
    /// Softmax attention over a key/value cache.
    Attention(Attention),
    /// Gated delta rule with a recurrent state and a short convolution.
    GatedDelta(GatedDelta),
    /// Gated short convolution.
    ShortConv(ShortConv),
}

/// Causal grouped-query attention.
///
/// Query and key heads are normalised (where norms are given), then rotated by halves on their first
/// `rope.rotary_dim` elements. With a gate, the attention result is multiplied by `sigmoid(gate(x))` before the
/// output projection.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Query heads, a multiple of `kv_heads`.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// Elements of one head of query, key and value.
    pub head_dim: u64,
    /// Factor on query · key.
    pub scale: f32,
    /// `[heads * head_dim, hidden_size]`.
    pub query: Weight,
    /// `[kv_heads * head_dim, hidden_size]`.
    pub key: Weight,
    /// `[kv_heads * head_dim, hidden_size]`.
    pub value: Weight,
    /// `[heads * head_dim, hidden_size]`, rows in the order of `query`.
    pub gate: Option<Weight>,
    /// RMS norm of each query head, `[head_dim]`.
    pub query_norm: Option<Norm>,
    /// RMS norm of each key head, `[head_dim]`.
    pub key_norm: Option<Norm>,
    /// Rotary positions.
    pub rope: Rope,
    /// `[hidden_size, heads * head_dim]`.
    pub output: Weight,
}

/// Gated DeltaNet.
///
/// `qkv(x)` passes a causal convolution with SiLU, then the gated delta rule (decay
/// `exp(-exp(a_log) * softplus(a(x) + dt_bias))`, step `sigmoid(b(x))`, L2-normalised query and key, scale
/// `key_dim^-0.5`); each head of the result is RMS-normalised with `norm`, multiplied by `silu(z(x))` and projected.
/// Value head `h` uses key head `h * key_heads / value_heads`.
#[derive(Clone, Debug, PartialEq)]
pub struct GatedDelta {
    /// Heads of query and key.
    pub key_heads: u64,
    /// Heads of value, a multiple of `key_heads`.
    pub value_heads: u64,
    /// Elements of a query or key head.
    pub key_dim: u64,
    /// Elements of a value head.
    pub value_dim: u64,
    /// Taps of the convolution.
    pub kernel: u64,
    /// `[channels, hidden_size]`, rows query | key | value, `channels = 2 * key_heads * key_dim + value_heads * value_dim`.
    pub qkv: Weight,
    /// Output gate, `[value_heads * value_dim, hidden_size]`.
    pub z: Weight,
    /// Raw decay, `[value_heads, hidden_size]`.
    pub a: Weight,
    /// Raw step size, `[value_heads, hidden_size]`.
    pub b: Weight,
    /// Convolution, `[channels, kernel]`; the last column multiplies the current token.
    pub conv: Weight,
    /// `[value_heads]`.
    pub a_log: Weight,
    /// `[value_heads]`.
    pub dt_bias: Weight,
    /// Norm of each value head, `[value_dim]`.
    pub norm: Norm,
    /// `[hidden_size, value_heads * value_dim]`.
    pub output: Weight,
}

/// Gated short convolution: `(B, C, u) = split(input(x)); output(C * conv(B * u))`, the convolution causal and
/// without activation or bias.
#[derive(Clone, Debug, PartialEq)]
pub struct ShortConv {
    /// Convolved channels.
    pub channels: u64,
    /// Taps of the convolution.
    pub kernel: u64,
    /// `[3 * channels, hidden_size]`, rows B | C | u.
    pub input: Weight,
    /// `[channels, kernel]`; the last column multiplies the current token.
    pub conv: Weight,
    /// `[hidden_size, channels]`.
    pub output: Weight,
}

/// Gated MLP: `down(silu(gate(x)) * up(x))`.
#[derive(Clone, Debug, PartialEq)]
pub struct Mlp {
    /// `[intermediate, hidden_size]`.
    pub gate: Weight,
    /// `[intermediate, hidden_size]`.
    pub up: Weight,
    /// `[hidden_size, intermediate]`.
    pub down: Weight,
}

/// Multi-token-prediction head. It shares the model's embedding and output projection.
///
/// Row `i`: `layer(fc([embedding_norm(embed(token[i + 1])) | hidden_norm(hidden[i])]))`, then `final_norm`, then the
/// output projection; it predicts token `i + 2`. `hidden` is the model's hidden row after its final norm.
#[derive(Clone, Debug, PartialEq)]
pub struct MtpHead {
    /// Norm of the token's embedding, `[hidden_size]`.
    pub embedding_norm: Norm,
    /// Norm of the model's hidden row, `[hidden_size]`.
    pub hidden_norm: Norm,
    /// `[hidden_size, 2 * hidden_size]`, embedding half first.
    pub fc: Weight,
    /// The head's only layer.
    pub layer: Layer,
    /// Norm after the layer, `[hidden_size]`.
    pub final_norm: Norm,
}

/// RMS norm: `x / sqrt(mean(x^2) + epsilon) * weight`.
#[derive(Clone, Debug, PartialEq)]
pub struct Norm {
    /// The factor per element, one axis.
    pub weight: Weight,
    /// Added to the mean square.
    pub epsilon: f32,
}

/// Rotary positions: element pairs `(i, i + rotary_dim / 2)` of a head turn by `position * inverse_frequencies[i]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Elements of a head that turn, even; the rest pass unchanged.
    pub rotary_dim: u64,
    /// Radians per position, `rotary_dim / 2` of them, scaling included.
    pub inverse_frequencies: Vec<f32>,
    /// Factor on both cosine and sine.
    pub attention_factor: f32,
}

/// Where one weight's values come from: rows of tensors of the checkpoint, one after the other, then a transform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weight {
    /// The rows that make up the weight, in order.
    pub parts: Vec<WeightPart>,
    /// Shape of the result. Its elements are those of the parts, in order.
    pub shape: Vec<u64>,
    /// Applied to every element, in float32.
    pub transform: Transform,
}

/// Consecutive rows of a tensor of the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightPart {
    /// Name in the checkpoint.
    pub tensor: String,
    /// Shape in the checkpoint.
    pub shape: Vec<u64>,
    /// Rows (indices of the leading axis) taken.
    pub rows: Range<u64>,
}

/// What happens to every element of a weight after widening to float32.
///
/// Exhaustive: whoever writes weights has to handle every kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transform {
    /// Nothing.
    #[default]
    None,
    /// Adds 1 (norms stored as their distance from 1).
    AddOne,
}

/// Tensors of the checkpoint that the description does not use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Common start of their names.
    pub prefix: String,
    /// How many they are.
    pub tensors: u64,
    /// Why they are not used.
    pub reason: &'static str,
}

impl Weight {
    /// The whole of one tensor of the checkpoint, shape unchanged.
    #[must_use]
    pub fn whole(tensor: impl Into<String>, shape: impl Into<Vec<u64>>) -> Self {
        let shape = shape.into();
        let rows = 0..shape.first().copied().unwrap_or(1);
        Self {
            parts: vec![WeightPart {
                tensor: tensor.into(),
                shape: shape.clone(),
                rows,
            }],
            shape,
            transform: Transform::None,
        }
    }

    /// Rows of the result (its leading axis); 1 for a scalar.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Elements of the result, saturating.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.shape.iter().fold(1, |n, &d| n.saturating_mul(d))
    }

    /// The rows of several weights below each other.
    ///
    /// ```
    /// # use pawl_models::Weight;
    /// let query = Weight::whole("q_proj.weight", [6, 4]);
    /// let key = Weight::whole("k_proj.weight", [2, 4]);
    /// let both = Weight::concat(&[&query, &key])?;
    /// assert_eq!(both.shape, [8, 4]);
    /// # Ok::<(), pawl_models::DescribeError>(())
    /// ```
    ///
    /// # Errors
    /// [`DescribeError::Concat`] if the list is empty, or the weights differ in trailing axes or transform.
    pub fn concat(weights: &[&Self]) -> Result<Self, DescribeError> {
        let refuse = || DescribeError::Concat {
            weights: weights.iter().map(|w| w.summary()).collect(),
        };
        let (first, _) = weights.split_first().ok_or_else(refuse)?;
        let (_, trailing) = first.shape.split_first().ok_or_else(refuse)?;
        let mut rows = 0_u64;
        for weight in weights {
            let (own, rest) = weight.shape.split_first().ok_or_else(refuse)?;
            if rest != trailing || weight.transform != first.transform {
                return Err(refuse());
            }
            rows = rows.checked_add(*own).ok_or_else(refuse)?;
        }
        Ok(Self {
            parts: weights
                .iter()
                .flat_map(|w| w.parts.iter().cloned())
                .collect(),
            shape: [&[rows], trailing].concat(),
            transform: first.transform,
        })
    }

    fn summary(&self) -> String {
        let name = self.parts.first().map_or("(empty)", |p| p.tensor.as_str());
        format!("{name} {:?}", self.shape)
    }
}
