//! `model.decoder.state_groups` in both spellings.

use genai_config_schema::{Binding, Bindings, StateGroup, StateKind, StateOperator, StateUpdate};
use pawl_models::{Layer, Mixer};

use super::number;
use crate::contract::names::{self, StateNames};
use crate::error::BuildError;
use crate::plan::Plan;

/// The layers with one kind of state.
#[derive(Debug)]
struct Members {
    layer_ids: Vec<u32>,
    key_heads: Option<u32>,
}

/// Groups with bindings and checkpoints.
pub(super) fn with_bindings(plan: &Plan<'_>) -> Result<Vec<StateGroup>, BuildError> {
    let mut groups = vec![StateGroup {
        kind: StateKind::PagedKv,
        layer_ids: attention_layers(plan),
        bindings: Some(Bindings {
            key: Some(binding(names::KEY)),
            value: Some(binding(names::VALUE)),
            state: None,
        }),
        ..StateGroup::default()
    }];
    for (operator, members) in fixed_groups(plan)? {
        let (names, checkpoints) = tensor_names(plan, operator);
        let kept = plan.checkpoints;
        groups.push(StateGroup {
            kind: StateKind::Fixed,
            operator: Some(operator),
            key_head_count: members.key_heads,
            layer_ids: members.layer_ids,
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
    for (operator, members) in fixed_groups(plan)? {
        groups.push(StateGroup {
            kind: match operator {
                StateOperator::GatedDeltaNet => StateKind::FixedRecurrent,
                StateOperator::CausalConv | StateOperator::TokenHistory => StateKind::FixedConv,
            },
            layer_ids: members.layer_ids,
            state_update: plan.checkpoints.map(|kept| StateUpdate {
                capacity: u32::from(kept.count),
                enabled: None,
                key_head_count: members.key_heads,
            }),
            ..StateGroup::default()
        });
    }
    Ok(groups)
}

fn attention_layers(plan: &Plan<'_>) -> Vec<u32> {
    layers_where(plan, |layer| matches!(layer.mixer, Mixer::Attention(_)))
}

fn layers_where(plan: &Plan<'_>, wanted: impl Fn(&Layer) -> bool) -> Vec<u32> {
    (0..)
        .zip(&plan.description.layers)
        .filter(|(_, layer)| wanted(layer))
        .map(|(index, _)| index)
        .collect()
}

/// The convolutions of the model, then its recurrent states; layers of different key heads lie in different groups.
fn fixed_groups(plan: &Plan<'_>) -> Result<Vec<(StateOperator, Members)>, BuildError> {
    let mut groups = Vec::new();
    let layer_ids = layers_where(plan, |layer| !matches!(layer.mixer, Mixer::Attention(_)));
    if !layer_ids.is_empty() {
        let members = Members {
            layer_ids,
            key_heads: None,
        };
        groups.push((StateOperator::CausalConv, members));
    }
    for heads in plan.recurrent_key_heads() {
        let members = Members {
            layer_ids: layers_where(
                plan,
                |layer| matches!(&layer.mixer, Mixer::GatedDelta(mixer) if mixer.key_heads == heads),
            ),
            key_heads: Some(number("linear_num_key_heads", heads)?),
        };
        groups.push((StateOperator::GatedDeltaNet, members));
    }
    Ok(groups)
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
