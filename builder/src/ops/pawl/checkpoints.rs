//! Checkpoint outputs of Pawl's operators.

use genai_config_schema::CheckpointForm;

use crate::contract::symbols;
use crate::error::BuildError;
use crate::graph::ir::{Attribute, Dim};
use crate::graph::{Check, Value};
use crate::ops::Capture;

/// Attributes that say what is captured; none when nothing ever is.
pub(super) fn attributes(
    check: &Check,
    capture: Option<&Capture<'_>>,
) -> Result<Vec<(&'static str, Attribute)>, BuildError> {
    let Some(capture) = capture else {
        return Ok(Vec::new());
    };
    let form = match capture.form {
        CheckpointForm::State => "state",
        CheckpointForm::Update => "update",
    };
    let count = check.integer("checkpoint_count", capture.count)?;
    Ok(vec![
        ("checkpoint_count", Attribute::Int(count)),
        ("checkpoint_form", Attribute::String(form.to_owned())),
    ])
}

/// Shape of a checkpoint output: the slot axis leads, and is empty on a step that captures nothing.
///
/// A slot holds, for every batch row, the whole state or one transition of `update_width` elements.
pub(super) fn dims(
    check: &Check,
    capture: Option<&Capture<'_>>,
    state: &Value,
    update_width: u64,
) -> Result<Option<Vec<Dim>>, BuildError> {
    let Some(capture) = capture else {
        return Ok(None);
    };
    let [rows] = check.rank("capture_counts", capture.counts)?;
    let mut dims = vec![symbols::CHECKPOINT_SLOTS, rows];
    match capture.form {
        CheckpointForm::State => dims.extend(state.dims().iter().skip(1)),
        CheckpointForm::Update => dims.push(update_width.into()),
    }
    Ok(Some(dims))
}
