//! A layer's causal convolution.

use pawl_models::Weight;

use super::{LayerContext, state};
use crate::contract::names;
use crate::error::BuildError;
use crate::graph::{GraphBuilder, Value};
use crate::ops::{Activation, ConvNode};

/// A causal convolution of a layer and what follows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Convolution<'a> {
    pub(super) weight: &'a Weight,
    pub(super) channels: u64,
    pub(super) kernel: u64,
    pub(super) activation: Activation,
}

/// The convolution with its state.
pub(super) fn convolve(
    g: &mut GraphBuilder,
    cx: &LayerContext<'_>,
    conv: &Convolution<'_>,
    x: &Value,
) -> Result<Value, BuildError> {
    let (target, dtype) = (cx.plan.target, cx.plan.dtype);
    if conv.kernel < 2 {
        return Err(BuildError::Unsupported {
            part: format!("layer {}: a convolution of {} taps", cx.index, conv.kernel),
            reason: "it keeps no state; 2 taps are the fewest".to_owned(),
        });
    }
    let dims = (target.conv_weight)(conv.channels, conv.kernel);
    let weight = g.weight_as("conv.weight", dtype, conv.weight, dims)?;
    let row = [conv.channels, conv.kernel.saturating_sub(1)];
    let past = state::fixed_input(g, cx, names::CONV, dtype, row)?;
    let node = ConvNode {
        x,
        weight: &weight,
        state: &past,
        cumulative_lengths: &cx.step.cumulative_lengths,
        rows: cx.step.rows(),
        capture: cx.step.capture(),
        activation: conv.activation,
    };
    let values = (target.causal_conv)(g, "conv", &node)?;
    state::fixed_outputs(g, cx, names::CONV, target.conv_checkpoints, &values);
    Ok(values.output)
}
