//! What a target offers: one table per provider, asked by the blocks instead of the provider's name.

mod cpu;
mod cuda;

use genai_config_schema::StateLayout;

use crate::error::BuildError;
use crate::graph::ir::Dim;
use crate::graph::{GraphBuilder, Value};
use crate::ops::{AttentionNode, AttentionValues, ConvNode, DeltaNode, StateValues};
use crate::options::Target;
use crate::rope::RotationRequest;

/// Operators, layouts and names of one provider.
#[derive(Debug)]
pub(crate) struct TargetTable {
    /// ONNX Runtime's name of the provider, where one must be asked for.
    pub(crate) provider: Option<&'static str>,
    /// Tokens of a key/value block.
    pub(crate) block_size: u32,
    /// How a stateful operator meets the pool of fixed state.
    pub(crate) state_layout: StateLayout,
    /// Leading axis of a fixed state.
    pub(crate) state_rows: Dim,
    /// Whether rows that capture may share a step with rows that do not.
    pub(crate) captures_in_mixed_steps: bool,
    /// Graph input with the number of tokens captured of each row.
    pub(crate) capture_counts: &'static str,
    /// Graph input that says whether anything is captured, where an operator takes it.
    pub(crate) capture_active: Option<&'static str>,
    /// Whether the host cannot reach states, so that graphs commit them.
    pub(crate) commit_graphs: bool,
    /// Checkpoints of a convolution; `%d` is the layer.
    pub(crate) conv_checkpoints: &'static str,
    /// Checkpoints of a recurrent state; `%d` is the layer.
    pub(crate) recurrent_checkpoints: &'static str,
    /// Positions that tables of cosines and sines are made for at most, unless more are asked for;
    /// `None` where there are no such tables.
    pub(crate) position_limit: Option<u64>,
    /// Shape of a convolution's weight, from channels and taps.
    pub(crate) conv_weight: fn(u64, u64) -> Vec<u64>,
    /// Cosines and sines, as the attention wants them.
    pub(crate) rotation: EmitRotation,
    /// Attention over a paged cache.
    pub(crate) paged_attention: EmitAttention,
    /// Causal depthwise convolution.
    pub(crate) causal_conv: EmitConv,
    /// Gated delta rule; the result is `[T, heads * width]` or `[T, heads, width]`.
    pub(crate) gated_delta_net: EmitDelta,
}

type EmitRotation =
    fn(&mut GraphBuilder, &RotationRequest<'_>) -> Result<(Value, Value), BuildError>;
type EmitAttention =
    fn(&mut GraphBuilder, &str, &AttentionNode<'_>) -> Result<AttentionValues, BuildError>;
type EmitConv = fn(&mut GraphBuilder, &str, &ConvNode<'_>) -> Result<StateValues, BuildError>;
type EmitDelta = fn(&mut GraphBuilder, &str, &DeltaNode<'_>) -> Result<StateValues, BuildError>;

/// The table of a target.
pub(crate) fn table(target: Target) -> &'static TargetTable {
    match target {
        Target::Cpu => &cpu::TABLE,
        Target::Cuda => &cuda::TABLE,
    }
}
