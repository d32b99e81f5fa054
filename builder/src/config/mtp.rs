//! `model.mtp`.

use genai_config_schema::{Mtp, MtpInputs, MtpOutputs};
use pawl_models::{Mixer, MtpHead};

use super::{number, session_options, shared_initializers};
use crate::contract::names;
use crate::error::BuildError;
use crate::graph::ir::SharedPlacement;
use crate::plan::Plan;

pub(super) fn mtp(
    plan: &Plan<'_>,
    head: &MtpHead,
    shared: &[SharedPlacement],
) -> Result<Mtp, BuildError> {
    let attention = match &head.layer.mixer {
        Mixer::Attention(attention) => attention,
        Mixer::GatedDelta(_) | Mixer::ShortConv(_) => return Err(crate::mtp::not_attention(head)),
    };
    let name = |name: &str| Some(name.to_owned());
    Ok(Mtp {
        filename: names::MTP_FILE.to_owned(),
        num_hidden_layers: Some(1),
        num_key_value_heads: number("mtp.num_key_value_heads", attention.kv_heads)?,
        head_size: number("mtp.head_size", attention.head_dim)?,
        main_hidden_states: name(names::HIDDEN_STATES),
        inputs: MtpInputs {
            input_ids: name(names::INPUT_IDS),
            hidden_states: name(names::HIDDEN_STATES),
            position_ids: name(names::POSITION_IDS),
            cumulative_sequence_lengths: name(names::CUMULATIVE_LENGTHS),
            past_sequence_lengths: name(names::PAST_LENGTHS),
            block_table: name(names::BLOCK_TABLE),
            logits_indices: name(names::LOGITS_INDICES),
            past_key_names: name(names::KEY.input),
            past_value_names: name(names::VALUE.input),
            ..MtpInputs::default()
        },
        outputs: MtpOutputs {
            logits: name(names::LOGITS),
            hidden_states: name(names::HIDDEN_STATES_OUT),
            present_key_names: name(names::KEY.output),
            present_value_names: name(names::VALUE.output),
        },
        shared_initializers: shared_initializers(shared, names::MTP_FILE),
        session_options: session_options(plan),
        ..Mtp::default()
    })
}
