//! `com.microsoft::GatedDeltaNet`.

use super::update;
use crate::error::BuildError;
use crate::graph::ir::Attribute;
use crate::graph::{GraphBuilder, Operator, Output};
use crate::ops::{DeltaNode, StateValues};

/// Gated delta rule, one state row per batch row; the result is `[T, value_heads, value_dim]`.
///
/// Transitions are `[rows, capacity * (decay + key + delta)]` in float32, each row a struct of arrays:
/// all decays, all keys, all deltas.
pub(crate) fn gated_delta_net(
    g: &mut GraphBuilder,
    name: &str,
    node: &DeltaNode<'_>,
) -> Result<StateValues, BuildError> {
    let check = g.check(name);
    let shape = node.check(&check)?;
    let capture = node.capture.as_ref();
    let updates = update::capacity(&check, capture)?
        .map(|(rows, capacity)| vec![rows, capacity.saturating_mul(shape.update_width).into()]);
    let text = |value: &str| Attribute::String(value.to_owned());
    let mut attributes = vec![
        ("update_rule", text("gated_delta")),
        ("gate_activation", text("softplus")),
        ("beta_activation", text("sigmoid")),
        ("qk_l2_norm", Attribute::Int(1)),
    ];
    attributes.extend(update::attribute(&check, capture)?);
    let operator = Operator {
        domain: super::DOMAIN,
        op_type: "GatedDeltaNet",
        name,
        inputs: vec![
            Some(node.qkv),
            None,
            None,
            Some(node.cumulative_lengths),
            Some(node.decay),
            Some(node.beta),
            Some(node.state),
            Some(node.a_log),
            Some(node.dt_bias),
            capture.map(|capture| capture.counts),
            capture.and_then(|capture| capture.active),
        ],
        attributes,
    };
    let heads = [
        shape.tokens,
        shape.value_heads.into(),
        shape.value_dim.into(),
    ];
    let output = Output::main(node.qkv.dtype(), heads);
    StateValues::emit(g, operator, output, node.state, updates)
}
