//! `com.microsoft::VarlenCausalConvWithState`.

use super::update;
use crate::error::BuildError;
use crate::graph::ir::Attribute;
use crate::graph::{GraphBuilder, Operator, Output};
use crate::ops::{ConvNode, StateValues};

/// Depthwise causal convolution, one state row per batch row; the weight is `[channels, 1, kernel]`.
///
/// Transitions are `[rows, capacity, channels]`, raw inputs.
pub(crate) fn varlen_causal_conv(
    g: &mut GraphBuilder,
    name: &str,
    node: &ConvNode<'_>,
) -> Result<StateValues, BuildError> {
    let check = g.check(name);
    let shape = node.check(&check)?;
    let weight_dims = [shape.channels.into(), 1.into(), shape.kernel.into()];
    check.tensor("weight", node.weight, node.x.dtype(), &weight_dims)?;
    let capture = node.capture.as_ref();
    let updates = update::capacity(&check, capture)?
        .map(|(rows, capacity)| vec![rows, capacity.into(), shape.channels.into()]);
    let activation = node.activation.attribute().to_owned();
    let mut attributes = vec![("activation", Attribute::String(activation))];
    attributes.extend(update::attribute(&check, capture)?);
    let operator = Operator {
        domain: super::DOMAIN,
        op_type: "VarlenCausalConvWithState",
        name,
        inputs: vec![
            Some(node.x),
            Some(node.weight),
            Some(node.cumulative_lengths),
            None,
            Some(node.state),
            capture.map(|capture| capture.counts),
        ],
        attributes,
    };
    let output = Output::main(node.x.dtype(), [shape.tokens, shape.channels.into()]);
    StateValues::emit(g, operator, output, node.state, updates)
}
