//! Transition outputs of ONNX Runtime's operators.

use genai_config_schema::CheckpointForm;

use crate::error::BuildError;
use crate::graph::Check;
use crate::graph::ir::{Attribute, Dim};
use crate::ops::Capture;

/// The rows of the batch and the most transitions of each; the operators output no states.
pub(super) fn capacity(
    check: &Check,
    capture: Option<&Capture<'_>>,
) -> Result<Option<(Dim, u64)>, BuildError> {
    let Some(capture) = capture else {
        return Ok(None);
    };
    if capture.form != CheckpointForm::Update {
        return Err(check.defect("checkpoint form", "update", "state"));
    }
    let [rows] = check.rank("capture_count", capture.counts)?;
    Ok(Some((rows, capture.count)))
}

/// `state_update_capacity`; absent when nothing is ever captured.
pub(super) fn attribute(
    check: &Check,
    capture: Option<&Capture<'_>>,
) -> Result<Option<(&'static str, Attribute)>, BuildError> {
    let Some(capture) = capture else {
        return Ok(None);
    };
    let count = check.integer("state_update_capacity", capture.count)?;
    Ok(Some(("state_update_capacity", Attribute::Int(count))))
}
