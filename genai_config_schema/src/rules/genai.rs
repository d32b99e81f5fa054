//! State groups whose names stand under `inputs` and `outputs` (onnxruntime-genai 0.18).

use crate::report::Report;
use crate::{ConfigCode, Decoder, StateGroup, StateKind, path};

use super::groups::{Declared, Group};

/// What a fixed group says about captured transitions.
pub(super) fn declared(group: &StateGroup) -> Option<Declared> {
    let update = group.state_update.as_ref()?;
    (update.capacity > 0).then_some(Declared {
        count: update.capacity,
        enabled: update.enabled.unwrap_or(true),
    })
}

pub(super) fn check(decoder: &Decoder, groups: &[Group<'_>], report: &mut Report) {
    mixed(decoder, groups, report);
    let capacity_at = "model.decoder.state_update_capacity";
    for group in groups {
        let at = group.key("state_update");
        let Some(update) = &group.group.state_update else {
            continue;
        };
        if group.is_paged() {
            report.rule(ConfigCode::C18, &at, "a paged group has no state updates");
            continue;
        }
        let recurrent = group.group.kind == StateKind::FixedRecurrent;
        if update.key_head_count.is_some() != recurrent {
            let message = "fixed_recurrent needs it, fixed_conv must not have it";
            report.rule(ConfigCode::C26, &path::key(&at, "key_head_count"), message);
        }
        let decoder_wide = decoder.state_update_capacity;
        if update.capacity > 0
            && decoder_wide.is_some_and(|capacity| capacity != update.capacity)
            && !report.damaged_near(capacity_at)
        {
            let message = format!("differs from {capacity_at}");
            report.rule(ConfigCode::C27, &path::key(&at, "capacity"), message);
        }
    }
}

/// Keys of the other spelling.
fn mixed(decoder: &Decoder, groups: &[Group<'_>], report: &mut Report) {
    let mut refuse = |present: bool, at: &str| {
        if present {
            let message = "a pawl key in a file of the genai-0.18 spelling (no `bindings`)";
            report.rule(ConfigCode::MixedSpellings, at, message);
        }
    };
    let inputs = &decoder.inputs;
    refuse(
        decoder.captures_in_mixed_steps.is_some(),
        "model.decoder.captures_in_mixed_steps",
    );
    refuse(inputs.read_rows.is_some(), "model.decoder.inputs.read_rows");
    refuse(
        inputs.write_rows.is_some(),
        "model.decoder.inputs.write_rows",
    );
    for group in groups {
        let own = group.group;
        refuse(own.operator.is_some(), &group.key("operator"));
        refuse(own.key_head_count.is_some(), &group.key("key_head_count"));
        refuse(own.decay.is_some(), &group.key("decay"));
        refuse(!own.row_shape.is_empty(), &group.key("row_shape"));
        refuse(own.element_type.is_some(), &group.key("element_type"));
        refuse(own.fresh_token_id.is_some(), &group.key("fresh_token_id"));
        refuse(own.state_layout.is_some(), &group.key("state_layout"));
        refuse(
            own.checkpoint_count.is_some(),
            &group.key("checkpoint_count"),
        );
        refuse(
            own.checkpoint_alignment.is_some(),
            &group.key("checkpoint_alignment"),
        );
        refuse(own.checkpoint_form.is_some(), &group.key("checkpoint_form"));
        refuse(own.commit_filename.is_some(), &group.key("commit_filename"));
    }
}
