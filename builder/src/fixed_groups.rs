//! Layers whose fixed states are alike: one group of the configuration, and one commit graph.

use genai_config_schema::StateOperator;
use pawl_models::Mixer;

use crate::config::number;
use crate::contract::names;
use crate::error::BuildError;
use crate::graph::ir::Dtype;
use crate::plan::Plan;

/// What the states of one group have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FixedKind {
    pub(crate) operator: StateOperator,
    /// Extents of one row.
    pub(crate) row_shape: Vec<u64>,
    pub(crate) key_heads: Option<u32>,
    pub(crate) dtype: Dtype,
}

/// The layers with one kind of state.
#[derive(Debug)]
pub(crate) struct FixedGroup {
    pub(crate) kind: FixedKind,
    pub(crate) layer_ids: Vec<u32>,
    /// The graph that commits a kept prefix, where the target needs one.
    pub(crate) commit_file: Option<String>,
}

/// The convolutions of the model, then its recurrent states; what differs in shape or key heads lies in different
/// groups.
///
/// # Errors
/// Sizes that the configuration cannot hold.
pub(crate) fn fixed_groups(plan: &Plan<'_>) -> Result<Vec<FixedGroup>, BuildError> {
    let (mut convolutions, mut recurrent) = (Vec::new(), Vec::new());
    for (layer, index) in plan.description.layers.iter().zip(0..) {
        match &layer.mixer {
            Mixer::Attention(_) => {}
            Mixer::ShortConv(conv) => {
                let kind = convolution(plan, conv.channels, conv.kernel);
                join(&mut convolutions, index, kind);
            }
            Mixer::GatedDelta(delta) => {
                let kind = convolution(plan, delta.qkv.rows(), delta.kernel);
                join(&mut convolutions, index, kind);
                let kind = FixedKind {
                    operator: StateOperator::GatedDeltaNet,
                    row_shape: vec![delta.value_heads, delta.value_dim, delta.key_dim],
                    key_heads: Some(number("linear_num_key_heads", delta.key_heads)?),
                    dtype: Dtype::F32,
                };
                join(&mut recurrent, index, kind);
            }
        }
    }
    for groups in [&mut convolutions, &mut recurrent] {
        for (group, number) in groups.iter_mut().zip(1..) {
            group.commit_file = plan
                .has_commit_graphs()
                .then(|| names::commit_file(group.kind.operator, number));
        }
    }
    convolutions.extend(recurrent);
    Ok(convolutions)
}

fn convolution(plan: &Plan<'_>, channels: u64, kernel: u64) -> FixedKind {
    FixedKind {
        operator: StateOperator::CausalConv,
        row_shape: vec![channels, kernel.saturating_sub(1)],
        key_heads: None,
        dtype: plan.dtype,
    }
}

/// Adds a layer to the group of its kind.
fn join(groups: &mut Vec<FixedGroup>, layer: u32, kind: FixedKind) {
    match groups.iter_mut().find(|group| group.kind == kind) {
        Some(group) => group.layer_ids.push(layer),
        None => groups.push(FixedGroup {
            kind,
            layer_ids: vec![layer],
            commit_file: None,
        }),
    }
}
