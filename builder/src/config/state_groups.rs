//! `model.decoder.state_groups` in both spellings.

use genai_config_schema::{
    Binding, Bindings, ElementType, StateGroup, StateKind, StateOperator, StateUpdate,
};
use pawl_models::{Layer, Mixer};

use super::number;
use crate::contract::names::{self, StateNames};
use crate::error::BuildError;
use crate::graph::ir::Dtype;
use crate::plan::Plan;

/// What the states of one group have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kind {
    operator: StateOperator,
    row_shape: Vec<u64>,
    key_heads: Option<u32>,
}

/// The layers with one kind of state.
#[derive(Debug)]
struct Members {
    kind: Kind,
    layer_ids: Vec<u32>,
}

/// Groups with bindings and checkpoints.
pub(super) fn with_bindings(plan: &Plan<'_>) -> Result<Vec<StateGroup>, BuildError> {
    let mut groups = vec![StateGroup {
        kind: StateKind::PagedKv,
        layer_ids: attention_layers(plan),
        element_type: Some(element_type(plan.dtype)),
        bindings: Some(Bindings {
            key: Some(binding(names::KEY)),
            value: Some(binding(names::VALUE)),
            state: None,
        }),
        ..StateGroup::default()
    }];
    for Members { kind, layer_ids } in fixed_groups(plan)? {
        let operator = kind.operator;
        let (names, checkpoints) = tensor_names(plan, operator);
        let kept = plan.checkpoints;
        groups.push(StateGroup {
            kind: StateKind::Fixed,
            operator: Some(operator),
            key_head_count: kind.key_heads,
            layer_ids,
            row_shape: kind.row_shape,
            element_type: Some(match operator {
                StateOperator::GatedDeltaNet => ElementType::Float32,
                StateOperator::CausalConv | StateOperator::TokenHistory => element_type(plan.dtype),
            }),
            state_layout: Some(plan.target.state_layout),
            bindings: Some(Bindings {
                state: Some(Binding {
                    checkpoints: kept.map(|_| checkpoints.to_owned()),
                    ..binding(names)
                }),
                ..Bindings::default()
            }),
            checkpoint_count: kept.map(|kept| u32::from(kept.count)),
            checkpoint_alignment: kept.map(|kept| kept.alignment(operator)),
            checkpoint_form: kept.map(|kept| kept.form),
            ..StateGroup::default()
        });
    }
    Ok(groups)
}

/// Groups whose names stand under `inputs` and `outputs`.
pub(super) fn with_names(plan: &Plan<'_>) -> Result<Vec<StateGroup>, BuildError> {
    let mut groups = vec![StateGroup {
        kind: StateKind::PagedKv,
        layer_ids: attention_layers(plan),
        ..StateGroup::default()
    }];
    for Members { kind, layer_ids } in fixed_groups(plan)? {
        groups.push(StateGroup {
            kind: match kind.operator {
                StateOperator::GatedDeltaNet => StateKind::FixedRecurrent,
                StateOperator::CausalConv | StateOperator::TokenHistory => StateKind::FixedConv,
            },
            layer_ids,
            state_update: plan.checkpoints.map(|kept| StateUpdate {
                capacity: u32::from(kept.count),
                enabled: None,
                key_head_count: kind.key_heads,
            }),
            ..StateGroup::default()
        });
    }
    Ok(groups)
}

fn attention_layers(plan: &Plan<'_>) -> Vec<u32> {
    let attends = |layer: &Layer| matches!(layer.mixer, Mixer::Attention(_));
    (0..)
        .zip(&plan.description.layers)
        .filter(|(_, layer)| attends(layer))
        .map(|(index, _)| index)
        .collect()
}

/// The convolutions of the model, then its recurrent states; what differs in shape or key heads lies in different
/// groups.
fn fixed_groups(plan: &Plan<'_>) -> Result<Vec<Members>, BuildError> {
    let (mut convolutions, mut recurrent) = (Vec::new(), Vec::new());
    for (layer, index) in plan.description.layers.iter().zip(0..) {
        match &layer.mixer {
            Mixer::Attention(_) => {}
            Mixer::ShortConv(conv) => {
                join(
                    &mut convolutions,
                    index,
                    convolution(conv.channels, conv.kernel),
                );
            }
            Mixer::GatedDelta(delta) => {
                let kind = convolution(delta.qkv.rows(), delta.kernel);
                join(&mut convolutions, index, kind);
                let kind = Kind {
                    operator: StateOperator::GatedDeltaNet,
                    row_shape: vec![delta.value_heads, delta.value_dim, delta.key_dim],
                    key_heads: Some(number("linear_num_key_heads", delta.key_heads)?),
                };
                join(&mut recurrent, index, kind);
            }
        }
    }
    convolutions.extend(recurrent);
    Ok(convolutions)
}

fn convolution(channels: u64, kernel: u64) -> Kind {
    Kind {
        operator: StateOperator::CausalConv,
        row_shape: vec![channels, kernel.saturating_sub(1)],
        key_heads: None,
    }
}

/// Adds a layer to the group of its kind.
fn join(groups: &mut Vec<Members>, layer: u32, kind: Kind) {
    match groups.iter_mut().find(|members| members.kind == kind) {
        Some(members) => members.layer_ids.push(layer),
        None => groups.push(Members {
            kind,
            layer_ids: vec![layer],
        }),
    }
}

fn element_type(dtype: Dtype) -> ElementType {
    match dtype {
        Dtype::F32 => ElementType::Float32,
        Dtype::F16 => ElementType::Float16,
        Dtype::Bf16 => ElementType::Bfloat16,
        Dtype::I32 => ElementType::Int32,
        Dtype::I64 => ElementType::Int64,
    }
}

fn tensor_names(plan: &Plan<'_>, operator: StateOperator) -> (StateNames, &'static str) {
    match operator {
        StateOperator::GatedDeltaNet => (names::RECURRENT, plan.target.recurrent_checkpoints),
        StateOperator::CausalConv | StateOperator::TokenHistory => {
            (names::CONV, plan.target.conv_checkpoints)
        }
    }
}

fn binding(names: StateNames) -> Binding {
    Binding {
        input: names.input.to_owned(),
        output: names.output.to_owned(),
        checkpoints: None,
    }
}
