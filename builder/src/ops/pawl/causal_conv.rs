//! `pawl::CausalConv`.

use super::checkpoints;
use crate::error::BuildError;
use crate::graph::ir::{Attribute, Dtype};
use crate::graph::{GraphBuilder, Operator, Output};
use crate::ops::{ConvNode, StateValues};

/// Depthwise causal convolution whose state lies in a bank; the weight is `[channels, kernel]`.
///
/// A transition is the token's raw input, `channels` elements.
pub(crate) fn causal_conv(
    g: &mut GraphBuilder,
    name: &str,
    node: &ConvNode<'_>,
) -> Result<StateValues, BuildError> {
    let check = g.check(name);
    check.dtype("x", node.x, Dtype::F32)?;
    let shape = node.check(&check)?;
    let weight_dims = [shape.channels.into(), shape.kernel.into()];
    check.tensor("weight", node.weight, Dtype::F32, &weight_dims)?;
    let kept = checkpoints::dims(&check, node.capture.as_ref(), node.state, shape.channels)?;
    let activation = node.activation.attribute().to_owned();
    let mut attributes = vec![("activation", Attribute::String(activation))];
    attributes.extend(checkpoints::attributes(&check, node.capture.as_ref())?);
    let operator = Operator {
        domain: super::DOMAIN,
        op_type: "CausalConv",
        name,
        inputs: vec![
            Some(node.x),
            Some(node.weight),
            None,
            Some(node.state),
            Some(node.cumulative_lengths),
            node.rows.map(|rows| rows.read),
            node.rows.map(|rows| rows.write),
            node.capture.map(|capture| capture.counts),
        ],
        attributes,
    };
    let output = Output::main(Dtype::F32, node.x.dims());
    StateValues::emit(g, operator, output, node.state, kept)
}
