//! Graphs that propose tokens, and what they need of the decoder.

use crate::report::Report;
use crate::{BlockDrafter, ConfigCode, GenaiConfig, Model, Mtp, Spelling, path};

use super::{require, sizes};

pub(super) fn check(config: &GenaiConfig, report: &mut Report) {
    let model = &config.model;
    if let Some(mtp) = &model.mtp {
        mtp_head(model, mtp, report);
    }
    // How many tokens short of the block a drafter's proposal is.
    for (drafter, at, short) in [
        (&model.dflash2, "model.dflash2", 1),
        (&model.dspark, "model.dspark", 0),
    ] {
        if let Some(drafter) = drafter {
            block_drafter(model, drafter, at, short, report);
        }
    }
    if model.dflash2.is_some() && model.dspark.is_some() {
        report.rule(
            ConfigCode::Exclusive,
            "model.dspark",
            "there is already a dflash2 drafter",
        );
    }
    let head = model
        .mtp
        .as_ref()
        .is_some_and(|mtp| mtp.enabled.unwrap_or(true));
    if head && (model.dflash2.is_some() || model.dspark.is_some()) {
        let message = "a block drafter replaces the head; remove it or set enabled to false";
        report.rule(ConfigCode::Exclusive, "model.mtp", message);
    }
}

fn mtp_head(model: &Model, mtp: &Mtp, report: &mut Report) {
    sizes::initializers(&mtp.shared_initializers, "model.mtp", report);
    if !mtp.enabled.unwrap_or(true) {
        return;
    }
    fed(
        mtp.main_hidden_states.as_deref().unwrap_or("hidden_states"),
        "model.mtp.main_hidden_states",
        model.decoder.outputs.hidden_states.as_ref(),
        "model.decoder.outputs.hidden_states",
        report,
    );
    if Spelling::of(&model.decoder) == Spelling::Genai018 {
        return;
    }
    let (inputs, outputs) = (&mtp.inputs, &mtp.outputs);
    for (key, name) in [
        ("input_ids", &inputs.input_ids),
        ("hidden_states", &inputs.hidden_states),
        (
            "cumulative_sequence_lengths",
            &inputs.cumulative_sequence_lengths,
        ),
        ("past_sequence_lengths", &inputs.past_sequence_lengths),
        ("block_table", &inputs.block_table),
        ("past_key_names", &inputs.past_key_names),
        ("past_value_names", &inputs.past_value_names),
    ] {
        let at = path::key("model.mtp.inputs", key);
        require(name.as_ref(), &at, "the head reads packed batches", report);
    }
    for (key, name) in [
        ("logits", &outputs.logits),
        ("hidden_states", &outputs.hidden_states),
        ("present_key_names", &outputs.present_key_names),
        ("present_value_names", &outputs.present_value_names),
    ] {
        let at = path::key("model.mtp.outputs", key);
        require(name.as_ref(), &at, "the head drafts in chains", report);
    }
}

/// The decoder output that a drafter reads exists under the name the drafter gives.
fn fed(wanted: &str, at: &str, output: Option<&String>, output_at: &str, report: &mut Report) {
    require(output, output_at, "a drafter reads it", report);
    if output.is_some_and(|output| output != wanted) {
        let message = format!("`{}` is not the output {output_at}", path::shorten(wanted));
        report.rule(ConfigCode::Inconsistent, at, message);
    }
}

fn block_drafter(model: &Model, drafter: &BlockDrafter, at: &str, short: u32, report: &mut Report) {
    let key = |key: &str| path::key(at, key);
    sizes::initializers(&drafter.shared_initializers, at, report);
    sizes::token(
        drafter.mask_token_id,
        model.vocab_size,
        &key("mask_token_id"),
        report,
    );
    let (block, drafts) = (drafter.block_size, drafter.num_draft_tokens);
    if block > 0 && drafts > 0 && drafts.checked_add(short) != Some(block) {
        let message = format!("{drafts} drafts do not fit a block of {block}");
        report.rule(ConfigCode::Inconsistent, &key("num_draft_tokens"), message);
    }
    if drafter.sampled_proposal.is_some() && drafter.independent_sampling.is_some() {
        let message = "sampled_proposal already says how";
        report.rule(ConfigCode::Exclusive, &key("independent_sampling"), message);
    }
    let layers = model.decoder.num_hidden_layers;
    for (index, &layer) in drafter.aux_hidden_state_layers.iter().enumerate() {
        // The rows after the last layer are hidden state `layers`.
        if layers > 0 && layer > layers {
            let at = path::index(&key("aux_hidden_state_layers"), index);
            report.rule(
                ConfigCode::OutOfRange,
                &at,
                format!("layer {layer} of {layers} layers"),
            );
        }
    }
    fed(
        drafter
            .main_aux_hidden_states
            .as_deref()
            .unwrap_or("aux_hidden_states"),
        &key("main_aux_hidden_states"),
        model.decoder.outputs.aux_hidden_states.as_ref(),
        "model.decoder.outputs.aux_hidden_states",
        report,
    );
}
