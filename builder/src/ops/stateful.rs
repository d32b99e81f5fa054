//! Arguments and results that the stateful operators of both domains have in common.

use genai_config_schema::CheckpointForm;

use crate::error::BuildError;
use crate::graph::ir::{Attribute, Dim, Dtype};
use crate::graph::{Check, GraphBuilder, Operator, Output, Value};

/// One attention over a paged cache, queries, keys and values packed in one tensor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionNode<'a> {
    /// `[T, (heads + 2 * kv_heads) * head_dim]`: query | key | value.
    pub(crate) qkv: &'a Value,
    /// `[num_blocks, block_size, kv_heads, head_dim]`.
    pub(crate) key_cache: &'a Value,
    /// Like `key_cache`.
    pub(crate) value_cache: &'a Value,
    /// `i32 [rows + 1]`.
    pub(crate) cumulative_lengths: &'a Value,
    /// `i32 [rows]`.
    pub(crate) past_lengths: &'a Value,
    /// `i32 [rows, max_blocks]`.
    pub(crate) block_table: &'a Value,
    /// Cosines and sines, per token or per position, as the operator wants them.
    pub(crate) rotation: Option<(&'a Value, &'a Value)>,
    /// `[head_dim]`.
    pub(crate) query_norm: Option<&'a Value>,
    /// `[head_dim]`.
    pub(crate) key_norm: Option<&'a Value>,
    /// Added to the mean square by both norms.
    pub(crate) norm_epsilon: f32,
    pub(crate) heads: u64,
    pub(crate) kv_heads: u64,
    pub(crate) head_dim: u64,
    /// Factor on query · key.
    pub(crate) scale: f32,
}

impl AttentionNode<'_> {
    /// Requires the shapes that both domains share; the token axis and the columns of the result.
    pub(super) fn check(&self, check: &Check, dtype: Dtype) -> Result<(Dim, u64), BuildError> {
        let (tokens, width) = check.rows("qkv", self.qkv)?;
        check.dtype("qkv", self.qkv, dtype)?;
        let heads = self.kv_heads.saturating_mul(2).saturating_add(self.heads);
        check.equal("columns of qkv", heads.saturating_mul(self.head_dim), width)?;
        let [_, _, kv_heads, head_dim] = check.rank("key_cache", self.key_cache)?;
        check.equal("heads of key_cache", self.kv_heads, kv_heads)?;
        check.equal("width of key_cache", self.head_dim, head_dim)?;
        let cache = self.key_cache;
        check.tensor("value_cache", self.value_cache, cache.dtype(), cache.dims())?;
        if let Some((cos, sin)) = self.rotation {
            let (_, half) = check.rows("cos", cos)?;
            check.tensor("sin", sin, cos.dtype(), cos.dims())?;
            if half.saturating_mul(2) > self.head_dim {
                return Err(check.defect("cos", "at most half a head", &half.to_string()));
            }
        }
        for (argument, norm) in [("q_norm", self.query_norm), ("k_norm", self.key_norm)] {
            if let Some(norm) = norm {
                check.tensor(argument, norm, dtype, &[self.head_dim.into()])?;
            }
        }
        Ok((tokens, self.heads.saturating_mul(self.head_dim)))
    }

    /// The attributes that both domains share.
    pub(super) fn attributes(
        &self,
        check: &Check,
    ) -> Result<Vec<(&'static str, Attribute)>, BuildError> {
        let heads = check.integer("num_heads", self.heads)?;
        let kv_heads = check.integer("kv_num_heads", self.kv_heads)?;
        let mut attributes = vec![
            ("num_heads", Attribute::Int(heads)),
            ("kv_num_heads", Attribute::Int(kv_heads)),
            ("scale", Attribute::Float(self.scale)),
        ];
        if self.query_norm.or(self.key_norm).is_some() {
            attributes.push(("qk_norm_epsilon", Attribute::Float(self.norm_epsilon)));
        }
        Ok(attributes)
    }
}

/// What an attention computes.
#[derive(Clone, Debug)]
pub(crate) struct AttentionValues {
    /// `[T, heads * head_dim]`.
    pub(crate) output: Value,
    pub(crate) key_cache: Value,
    pub(crate) value_cache: Value,
}

/// Which row of the state each batch row reads and writes; `i32 [rows]` both.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowIndices<'a> {
    pub(crate) read: &'a Value,
    pub(crate) write: &'a Value,
}

/// What an operator keeps of each token besides its final state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capture<'a> {
    /// `i32 [rows]`: how many tokens of each row are captured.
    pub(crate) counts: &'a Value,
    /// `i32 [1]` in host memory, 0 when nothing is captured; for operators that take it.
    pub(crate) active: Option<&'a Value>,
    pub(crate) form: CheckpointForm,
    /// Most tokens captured per row.
    pub(crate) count: u64,
}

/// What follows a convolution within its operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    None,
    Silu,
}

impl Activation {
    /// The value of the operators' `activation` attribute.
    pub(crate) fn attribute(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Silu => "silu",
        }
    }
}

/// One causal depthwise convolution over packed rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConvNode<'a> {
    /// `[T, channels]`.
    pub(crate) x: &'a Value,
    pub(crate) weight: &'a Value,
    /// `[state rows, channels, kernel - 1]`, raw inputs, oldest first.
    pub(crate) state: &'a Value,
    /// `i32 [rows + 1]`.
    pub(crate) cumulative_lengths: &'a Value,
    /// For operators that choose rows of the state themselves.
    pub(crate) rows: Option<RowIndices<'a>>,
    pub(crate) capture: Option<Capture<'a>>,
    pub(crate) activation: Activation,
}

/// Extents of a convolution.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConvShape {
    pub(super) tokens: Dim,
    pub(super) channels: u64,
    pub(super) kernel: u64,
}

impl ConvNode<'_> {
    /// Requires the shapes that both domains share, but for the weight.
    pub(super) fn check(&self, check: &Check) -> Result<ConvShape, BuildError> {
        let (tokens, channels) = check.rows("x", self.x)?;
        let [_, state_channels, history] = check.rank("state", self.state)?;
        check.equal("channels of state", channels, state_channels)?;
        check.dtype("state", self.state, self.x.dtype())?;
        let history = check.extent("history of state", history)?;
        Ok(ConvShape {
            tokens,
            channels,
            kernel: history.saturating_add(1),
        })
    }
}

/// One Gated DeltaNet over packed rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeltaNode<'a> {
    /// `[T, 2 * key_heads * key_dim + value_heads * value_dim]`: query | key | value.
    pub(crate) qkv: &'a Value,
    /// Raw decay, `[T, value_heads]`.
    pub(crate) decay: &'a Value,
    /// Raw step size, `[T, value_heads]`.
    pub(crate) beta: &'a Value,
    /// `f32 [value_heads]`.
    pub(crate) a_log: &'a Value,
    /// `f32 [value_heads]`.
    pub(crate) dt_bias: &'a Value,
    /// `f32 [state rows, value_heads, value_dim, key_dim]`.
    pub(crate) state: &'a Value,
    /// `i32 [rows + 1]`.
    pub(crate) cumulative_lengths: &'a Value,
    /// For operators that choose rows of the state themselves.
    pub(crate) rows: Option<RowIndices<'a>>,
    pub(crate) capture: Option<Capture<'a>>,
    pub(crate) key_heads: u64,
}

/// Extents of a Gated DeltaNet.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeltaShape {
    pub(super) tokens: Dim,
    pub(super) value_heads: u64,
    pub(super) value_dim: u64,
    /// Elements of one transition: decay, key, delta.
    pub(super) update_width: u64,
}

impl DeltaNode<'_> {
    /// Requires the shapes that both domains share.
    pub(super) fn check(&self, check: &Check) -> Result<DeltaShape, BuildError> {
        let (tokens, width) = check.rows("qkv", self.qkv)?;
        let [_, value_heads, value_dim, key_dim] = check.rank("state", self.state)?;
        check.dtype("state", self.state, Dtype::F32)?;
        let value_heads = check.extent("heads of state", value_heads)?;
        let value_dim = check.extent("value width of state", value_dim)?;
        let key_dim = check.extent("key width of state", key_dim)?;
        let keys = self.key_heads.saturating_mul(key_dim);
        let values = value_heads.saturating_mul(value_dim);
        let packed = keys.saturating_mul(2).saturating_add(values);
        check.equal("columns of qkv", packed, width)?;
        if value_heads.checked_rem(self.key_heads) != Some(0) {
            let expected = format!("a multiple of {}", self.key_heads);
            return Err(check.defect("value heads", &expected, &value_heads.to_string()));
        }
        let per_head = [tokens, value_heads.into()];
        check.tensor("decay", self.decay, self.qkv.dtype(), &per_head)?;
        check.tensor("beta", self.beta, self.qkv.dtype(), &per_head)?;
        check.tensor("a_log", self.a_log, Dtype::F32, &[value_heads.into()])?;
        check.tensor("dt_bias", self.dt_bias, Dtype::F32, &[value_heads.into()])?;
        Ok(DeltaShape {
            tokens,
            value_heads,
            value_dim,
            update_width: value_heads.saturating_add(keys).saturating_add(values),
        })
    }
}

/// What an operator with a fixed state computes.
#[derive(Clone, Debug)]
pub(crate) struct StateValues {
    /// A row per token.
    pub(crate) output: Value,
    /// The state after the step, shaped like the state before it.
    pub(crate) state: Value,
    /// Present exactly when a capture was asked for.
    pub(crate) checkpoints: Option<Value>,
}

impl StateValues {
    /// Emits a stateful operator, with a checkpoint output of the given shape where one is wanted.
    pub(super) fn emit(
        g: &mut GraphBuilder,
        operator: Operator<'_>,
        output: Output<'_>,
        state: &Value,
        checkpoints: Option<Vec<Dim>>,
    ) -> Result<Self, BuildError> {
        let new_state = Output::named("state", state.dtype(), state.dims());
        let Some(dims) = checkpoints else {
            let [output, state] = g.node(operator, [output, new_state])?;
            return Ok(Self {
                output,
                state,
                checkpoints: None,
            });
        };
        let kept = Output::named("checkpoints", state.dtype(), dims);
        let [output, state, kept] = g.node(operator, [output, new_state, kept])?;
        Ok(Self {
            output,
            state,
            checkpoints: Some(kept),
        })
    }
}
