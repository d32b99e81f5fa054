//! `pawl::GatedDeltaNet`.

use super::checkpoints;
use crate::error::BuildError;
use crate::graph::ir::{Attribute, Dtype};
use crate::graph::{GraphBuilder, Operator, Output};
use crate::ops::{DeltaNode, StateValues};

/// Gated delta rule whose state lies in a bank; the result is `[T, value_heads * value_dim]`.
///
/// A transition is decay, key and delta of the token, in this order.
pub(crate) fn gated_delta_net(
    g: &mut GraphBuilder,
    name: &str,
    node: &DeltaNode<'_>,
) -> Result<StateValues, BuildError> {
    let check = g.check(name);
    check.dtype("qkv", node.qkv, Dtype::F32)?;
    let shape = node.check(&check)?;
    let capture = node.capture.as_ref();
    let kept = checkpoints::dims(&check, capture, node.state, shape.update_width)?;
    let key_heads = check.integer("key_heads", node.key_heads)?;
    let mut attributes = vec![("key_heads", Attribute::Int(key_heads))];
    attributes.extend(checkpoints::attributes(&check, capture)?);
    let operator = Operator {
        domain: super::DOMAIN,
        op_type: "GatedDeltaNet",
        name,
        inputs: vec![
            Some(node.qkv),
            Some(node.decay),
            Some(node.beta),
            Some(node.a_log),
            Some(node.dt_bias),
            Some(node.state),
            Some(node.cumulative_lengths),
            node.rows.map(|rows| rows.read),
            node.rows.map(|rows| rows.write),
            node.capture.map(|capture| capture.counts),
        ],
        attributes,
    };
    let columns = shape.value_heads.saturating_mul(shape.value_dim);
    let output = Output::main(Dtype::F32, [shape.tokens, columns.into()]);
    StateValues::emit(g, operator, output, node.state, kept)
}
