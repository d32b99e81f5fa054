//! `model.decoder`.

use genai_config_schema::{Decoder, DecoderInputs, DecoderOutputs, StateLayout};
use pawl_models::{Layer, Mixer};

use super::{number, session_options, shared_initializers, state_groups};
use crate::contract::names;
use crate::error::BuildError;
use crate::graph::ir::SharedPlacement;
use crate::options::Spelling;
use crate::plan::Plan;

pub(super) fn decoder(
    plan: &Plan<'_>,
    spelling: Spelling,
    shared: &[SharedPlacement],
) -> Result<Decoder, BuildError> {
    let model = plan.description;
    let attention = plan.attention;
    let mut decoder = Decoder {
        filename: names::MODEL_FILE.to_owned(),
        hidden_size: number("hidden_size", model.hidden_size)?,
        num_attention_heads: number("num_attention_heads", attention.heads)?,
        num_key_value_heads: number("num_key_value_heads", attention.kv_heads)?,
        num_hidden_layers: number("num_hidden_layers", model.layers.len() as u64)?,
        head_size: number("head_size", attention.head_dim)?,
        layer_types: model.layers.iter().map(|l| l.kind.to_owned()).collect(),
        session_options: session_options(plan),
        inputs: inputs(plan),
        outputs: DecoderOutputs {
            logits: Some(names::LOGITS.to_owned()),
            hidden_states: plan.head.map(|_| names::HIDDEN_STATES.to_owned()),
            ..DecoderOutputs::default()
        },
        captures_in_mixed_steps: plan
            .checkpoints
            .map(|_| plan.target.captures_in_mixed_steps)
            .filter(|mixed| *mixed),
        shared_initializers: shared_initializers(shared, names::MODEL_FILE),
        ..Decoder::default()
    };
    match spelling {
        Spelling::Pawl => decoder.state_groups = state_groups::with_bindings(plan)?,
        Spelling::Genai018 => {
            decoder.state_groups = state_groups::with_names(plan)?;
            decoder.state_update_capacity = plan.checkpoints.map(|kept| u32::from(kept.count));
            decoder.conv_cache_size = conv_cache_size(&model.layers)?;
            name_states(plan, &mut decoder);
        }
    }
    Ok(decoder)
}

fn inputs(plan: &Plan<'_>) -> DecoderInputs {
    let name = |name: &str| Some(name.to_owned());
    let bank = plan.has_fixed_state() && plan.target.state_layout == StateLayout::Bank;
    DecoderInputs {
        input_ids: name(names::INPUT_IDS),
        position_ids: name(names::POSITION_IDS),
        cumulative_sequence_lengths: name(names::CUMULATIVE_LENGTHS),
        past_sequence_lengths: name(names::PAST_LENGTHS),
        block_table: name(names::BLOCK_TABLE),
        logits_indices: name(names::LOGITS_INDICES),
        read_rows: bank.then(|| names::READ_ROWS.to_owned()),
        write_rows: bank.then(|| names::WRITE_ROWS.to_owned()),
        state_update_capture_count: plan
            .checkpoints
            .map(|_| plan.target.capture_counts.to_owned()),
        state_update_active: plan.capture_active().map(str::to_owned),
        ..DecoderInputs::default()
    }
}

/// Names under `inputs` and `outputs`, as onnxruntime-genai 0.18 wants them.
fn name_states(plan: &Plan<'_>, decoder: &mut Decoder) {
    let name = |name: &str| Some(name.to_owned());
    let (inputs, outputs) = (&mut decoder.inputs, &mut decoder.outputs);
    inputs.past_key_names = name(names::KEY.input);
    inputs.past_value_names = name(names::VALUE.input);
    outputs.present_key_names = name(names::KEY.output);
    outputs.present_value_names = name(names::VALUE.output);
    let kept = plan.checkpoints;
    if plan.has_fixed_state() {
        inputs.past_conv_names = name(names::CONV.input);
        outputs.present_conv_names = name(names::CONV.output);
        outputs.state_update_conv_value_names =
            kept.map(|_| plan.target.conv_checkpoints.to_owned());
    }
    if plan.has_recurrent_state() {
        inputs.past_recurrent_names = name(names::RECURRENT.input);
        outputs.present_recurrent_names = name(names::RECURRENT.output);
        outputs.state_update_recurrent_capsule_names =
            kept.map(|_| plan.target.recurrent_checkpoints.to_owned());
    }
}

/// Columns of the state of a model's short convolutions.
fn conv_cache_size(layers: &[Layer]) -> Result<Option<u32>, BuildError> {
    layers
        .iter()
        .find_map(|layer| match &layer.mixer {
            Mixer::ShortConv(conv) => Some(conv.kernel.saturating_sub(1)),
            Mixer::Attention(_) | Mixer::GatedDelta(_) => None,
        })
        .map(|columns| number("conv_cache_size", columns))
        .transpose()
}
