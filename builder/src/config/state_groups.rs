//! `model.decoder.state_groups` in both spellings.

use genai_config_schema::{
    Binding, Bindings, ElementType, StateGroup, StateKind, StateOperator, StateUpdate,
};
use pawl_models::{Layer, Mixer};

use crate::contract::names::{self, StateNames};
use crate::error::BuildError;
use crate::fixed_groups::{FixedGroup, fixed_groups};
use crate::graph::ir::Dtype;
use crate::plan::Plan;

/// Groups with bindings and checkpoints.
pub(super) fn with_bindings(plan: &Plan<'_>) -> Result<Vec<StateGroup>, BuildError> {
    let mut groups = vec![StateGroup {
        kind: StateKind::PagedKv,
        layer_ids: attention_layers(plan),
        element_type: element_type(plan.dtype),
        bindings: Some(Bindings {
            key: Some(binding(names::KEY)),
            value: Some(binding(names::VALUE)),
            state: None,
        }),
        ..StateGroup::default()
    }];
    for group in fixed_groups(plan)? {
        let FixedGroup {
            kind,
            layer_ids,
            commit_file,
        } = group;
        let operator = kind.operator;
        let (names, checkpoints) = tensor_names(plan, operator);
        let kept = plan.checkpoints;
        groups.push(StateGroup {
            kind: StateKind::Fixed,
            operator: Some(operator),
            key_head_count: kind.key_heads,
            layer_ids,
            row_shape: kind.row_shape,
            element_type: element_type(kind.dtype),
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
            commit_filename: commit_file,
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
    for FixedGroup {
        kind, layer_ids, ..
    } in fixed_groups(plan)?
    {
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

/// The word of a type that a state may have.
fn element_type(dtype: Dtype) -> Option<ElementType> {
    match dtype {
        Dtype::F32 => Some(ElementType::Float32),
        Dtype::F16 => Some(ElementType::Float16),
        Dtype::Bf16 => Some(ElementType::Bfloat16),
        Dtype::I32 => Some(ElementType::Int32),
        Dtype::I64 => Some(ElementType::Int64),
        Dtype::Bool | Dtype::U8 => None,
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
