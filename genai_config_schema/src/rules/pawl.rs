//! State groups that bind their own names.

use crate::report::Report;
use crate::{
    Bindings, CheckpointAlignment, CheckpointForm, ConfigCode, Decoder, ElementType, StateGroup,
    StateKind, StateLayout, StateOperator, path,
};

use super::groups::{Declared, Group};
use super::{names, require};

const INPUTS: &str = "model.decoder.inputs";
const OUTPUTS: &str = "model.decoder.outputs";

/// What a fixed group says about checkpoints.
pub(super) fn declared(group: &StateGroup) -> Option<Declared> {
    let count = group.checkpoint_count.filter(|&count| count > 0)?;
    Some(Declared {
        count,
        enabled: true,
    })
}

pub(super) fn check(decoder: &Decoder, groups: &[Group<'_>], report: &mut Report) {
    mixed(decoder, groups, report);
    for group in groups {
        match group.group.kind {
            StateKind::PagedKv => paged(group, report),
            StateKind::Fixed => fixed(group, report),
            StateKind::FixedConv | StateKind::FixedRecurrent => {}
        }
    }
    inputs(decoder, groups, report);
}

/// Keys of the other spelling.
fn mixed(decoder: &Decoder, groups: &[Group<'_>], report: &mut Report) {
    let mut refuse = |at: &str| {
        let message = "a genai-0.18 key in a file of the pawl spelling (`fixed`, `bindings`)";
        report.rule(ConfigCode::MixedSpellings, at, message);
    };
    if decoder.state_update_capacity.is_some() {
        refuse("model.decoder.state_update_capacity");
    }
    for (at, key, _) in names::templates(&decoder.inputs, INPUTS)
        .into_iter()
        .chain(names::templates(&decoder.outputs, OUTPUTS))
    {
        refuse(&path::key(at, &key));
    }
    for group in groups {
        if matches!(
            group.group.kind,
            StateKind::FixedConv | StateKind::FixedRecurrent
        ) {
            refuse(&group.key("kind"));
        }
        if group.group.state_update.is_some() {
            refuse(&group.key("state_update"));
        }
    }
}

fn paged(group: &Group<'_>, report: &mut Report) {
    let bindings = group.group.bindings.clone().unwrap_or_default();
    let at = group.key("bindings");
    for (key, bound) in [("key", &bindings.key), ("value", &bindings.value)] {
        if bound.is_none() {
            let message = "a paged group binds key and value";
            report.rule(ConfigCode::C10, &path::key(&at, key), message);
        }
    }
    if bindings.state.is_some() {
        let message = "a paged group binds key and value only";
        report.rule(ConfigCode::C10, &path::key(&at, "state"), message);
    }
    paged_checkpoints(group, &bindings, report);
    if group.group.key_head_count.is_some() {
        let message = "a paged group has no operator with key heads of its own";
        report.rule(ConfigCode::C26, &group.key("key_head_count"), message);
    }
    let unused = [
        ("operator", group.group.operator.is_some()),
        ("decay", group.group.decay.is_some()),
        ("commit_filename", group.group.commit_filename.is_some()),
        ("state_layout", group.group.state_layout.is_some()),
        ("row_shape", !group.group.row_shape.is_empty()),
        ("fresh_token_id", group.group.fresh_token_id.is_some()),
    ];
    for (key, _) in unused.into_iter().filter(|(_, present)| *present) {
        report.rule(
            ConfigCode::Misplaced,
            &group.key(key),
            "only fixed groups have it",
        );
    }
}

/// The committed length alone decides what of a key/value cache is valid.
fn paged_checkpoints(group: &Group<'_>, bindings: &Bindings, report: &mut Report) {
    let declared = [
        ("checkpoint_count", group.group.checkpoint_count.is_some()),
        (
            "checkpoint_alignment",
            group.group.checkpoint_alignment.is_some(),
        ),
        ("checkpoint_form", group.group.checkpoint_form.is_some()),
    ];
    let mut refuse = |at: &str| {
        report.rule(ConfigCode::C15, at, "a paged group has no checkpoints");
    };
    for (key, _) in declared.into_iter().filter(|(_, present)| *present) {
        refuse(&group.key(key));
    }
    for (key, bound) in [("key", &bindings.key), ("value", &bindings.value)] {
        if bound
            .as_ref()
            .is_some_and(|bound| bound.checkpoints.is_some())
        {
            refuse(&path::key(
                &path::key(&group.key("bindings"), key),
                "checkpoints",
            ));
        }
    }
}

fn fixed(group: &Group<'_>, report: &mut Report) {
    let at = group.key("bindings");
    let bindings = group.group.bindings.as_ref();
    if bindings.is_none_or(|bindings| bindings.state.is_none()) {
        report.rule(
            ConfigCode::C11,
            &path::key(&at, "state"),
            "a fixed group binds state",
        );
    }
    if let Some(bindings) = bindings {
        for (key, bound) in [("key", &bindings.key), ("value", &bindings.value)] {
            if bound.is_some() {
                let message = "a fixed group binds state only";
                report.rule(ConfigCode::C11, &path::key(&at, key), message);
            }
        }
    }
    let operator = group.group.operator;
    require(
        operator.as_ref(),
        &group.key("operator"),
        "it owns the state",
        report,
    );
    let wanted = operator == Some(StateOperator::GatedDeltaNet);
    if operator.is_some() && group.group.key_head_count.is_some() != wanted {
        let message = "gated_delta_net needs it, other operators must not have it";
        report.rule(ConfigCode::C26, &group.key("key_head_count"), message);
    }
    if operator.is_some() && !wanted && group.group.decay.is_some() {
        let message = "only transitions of gated_delta_net decay";
        report.rule(ConfigCode::Misplaced, &group.key("decay"), message);
    }
    row_shape(group, report);
    ids(group, report);
    checkpoints(group, report);
}

/// A history holds ids, other states have none.
fn ids(group: &Group<'_>, report: &mut Report) {
    let StateGroup {
        operator: Some(operator),
        element_type,
        fresh_token_id,
        ..
    } = group.group
    else {
        return;
    };
    if *operator != StateOperator::TokenHistory {
        if fresh_token_id.is_some() {
            let message = "only token_history holds ids";
            report.rule(ConfigCode::Misplaced, &group.key("fresh_token_id"), message);
        }
        return;
    }
    let whole = [ElementType::Int64, ElementType::Int32];
    if let Some(found) = element_type.filter(|found| !whole.contains(found)) {
        let message = format!("ids are int64 or int32, found {}", found.as_str());
        report.rule(
            ConfigCode::Inconsistent,
            &group.key("element_type"),
            message,
        );
    }
}

/// A row has the axes of its operator, and heads that belong together.
fn row_shape(group: &Group<'_>, report: &mut Report) {
    let at = group.key("row_shape");
    let shape = group.group.row_shape.as_slice();
    let (Some(operator), false) = (group.group.operator, shape.is_empty()) else {
        return;
    };
    let axes = operator.row_axes();
    if shape.len() != axes.len() {
        let message = format!("expected [{}], found {shape:?}", axes.join(", "));
        report.rule(ConfigCode::Inconsistent, &at, message);
        return;
    }
    let heads = group.group.key_head_count.filter(|&heads| heads > 0);
    if let (StateOperator::GatedDeltaNet, Some(heads), Some(&values)) =
        (operator, heads, shape.first())
        && values % u64::from(heads) != 0
    {
        let message = format!("{values} value heads are not a multiple of {heads} key heads");
        report.rule(ConfigCode::Inconsistent, &at, message);
    }
}

fn checkpoints(group: &Group<'_>, report: &mut Report) {
    if report.damaged_near(&group.key("checkpoint_count")) {
        return;
    }
    let StateGroup {
        checkpoint_alignment: alignment,
        checkpoint_form: form,
        ..
    } = group.group;
    let state = group
        .group
        .bindings
        .as_ref()
        .and_then(|bindings| bindings.state.as_ref());
    let template = state.and_then(|state| state.checkpoints.as_ref());
    let (count_at, form_at) = (group.key("checkpoint_count"), group.key("checkpoint_form"));
    let alignment_at = group.key("checkpoint_alignment");
    let template_at = path::key(&path::key(&group.key("bindings"), "state"), "checkpoints");
    if declared(group.group).is_none() {
        if template.is_some() {
            let message = "checkpoints need a positive checkpoint_count";
            report.rule(ConfigCode::C14, &template_at, message);
        }
        for (at, present) in [
            (alignment_at, alignment.is_some()),
            (form_at, form.is_some()),
            (
                group.key("commit_filename"),
                group.group.commit_filename.is_some(),
            ),
        ] {
            if present {
                report.rule(ConfigCode::Misplaced, &at, "the group has no checkpoints");
            }
        }
        return;
    }
    if state.is_some() && template.is_none() && !report.damaged_near(&template_at) {
        let message = "a positive count needs bindings.state.checkpoints";
        report.rule(ConfigCode::C14, &count_at, message);
    }
    require(form.as_ref(), &form_at, "it says what a slot holds", report);
    require(
        alignment.as_ref(),
        &alignment_at,
        "it says which slot a token has",
        report,
    );
    if (*form, *alignment)
        == (
            Some(CheckpointForm::Update),
            Some(CheckpointAlignment::Right),
        )
    {
        let message = "transitions are replayed from the left";
        report.rule(ConfigCode::UpdateAlignment, &alignment_at, message);
    }
}

/// The inputs and outputs that packed batches and the declared state need.
fn inputs(decoder: &Decoder, groups: &[Group<'_>], report: &mut Report) {
    let names = &decoder.inputs;
    let tokens = names.input_ids.as_ref().or(names.inputs_embeds.as_ref());
    let mut needed = vec![
        (
            "model.decoder.inputs.input_ids",
            tokens,
            "the graph reads tokens",
        ),
        (
            "model.decoder.inputs.cumulative_sequence_lengths",
            names.cumulative_sequence_lengths.as_ref(),
            "batches are packed",
        ),
        (
            "model.decoder.outputs.logits",
            decoder.outputs.logits.as_ref(),
            "the graph predicts tokens",
        ),
    ];
    if groups.iter().any(Group::is_paged) {
        let why = "there is a paged group";
        let lengths = names.past_sequence_lengths.as_ref();
        needed.push(("model.decoder.inputs.past_sequence_lengths", lengths, why));
        needed.push((
            "model.decoder.inputs.block_table",
            names.block_table.as_ref(),
            why,
        ));
    }
    if groups
        .iter()
        .any(|group| group.group.state_layout == Some(StateLayout::Bank))
    {
        let why = "a group has the layout bank";
        needed.push((
            "model.decoder.inputs.read_rows",
            names.read_rows.as_ref(),
            why,
        ));
        needed.push((
            "model.decoder.inputs.write_rows",
            names.write_rows.as_ref(),
            why,
        ));
    }
    for (at, name, why) in needed {
        require(name, at, why, report);
    }
}
