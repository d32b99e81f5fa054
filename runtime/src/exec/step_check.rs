//! Whether the inputs of a step belong together, before anything runs.

use super::decoder::{Signature, StepInput};
use super::step::{Capture, StepInputs};
use crate::model::spec::StateSpec;

/// Checks lengths, row bounds and the capture flag. The message says which input is wrong and what was expected.
pub(super) fn check(
    inputs: &StepInputs,
    signature: &Signature,
    state: &StateSpec,
    capture: Capture,
) -> Result<(), String> {
    let (tokens, rows) = (inputs.input_ids.len(), inputs.past.len());
    if tokens == 0 || rows == 0 {
        return Err(format!("a step of {tokens} tokens in {rows} rows"));
    }
    for (input, name) in &signature.inputs {
        let (given, expected) = match input {
            StepInput::InputIds => (tokens, tokens),
            StepInput::PositionIds => (inputs.position_ids.len(), tokens),
            StepInput::CumulativeLengths => (inputs.cumulative.len(), rows + 1),
            StepInput::PastLengths => (rows, rows),
            StepInput::BlockTable => (
                inputs.block_table.len(),
                rows.saturating_mul(inputs.max_blocks),
            ),
            StepInput::LogitsIndices => continue,
            StepInput::ReadRows => (inputs.read_rows.len(), rows),
            StepInput::WriteRows => (inputs.write_rows.len(), rows),
            StepInput::CaptureCounts => (inputs.capture_counts.len(), rows),
            StepInput::HiddenStates => (
                inputs.hidden_states.len(),
                tokens.saturating_mul(signature.hidden_size),
            ),
        };
        if given != expected {
            return Err(format!(
                "`{name}` has {given} elements, expected {expected} for {tokens} tokens in {rows} rows"
            ));
        }
    }
    bounds(inputs, tokens)?;
    captures(inputs, state, capture)
}

/// Rows must tile the packed tokens without gaps, each with at least one, and logits must be of tokens of the step.
fn bounds(inputs: &StepInputs, tokens: usize) -> Result<(), String> {
    let cumulative = &inputs.cumulative;
    let rising = cumulative.is_sorted_by(|a, b| a < b);
    let last = cumulative
        .last()
        .and_then(|last| usize::try_from(*last).ok());
    if cumulative.first() != Some(&0) || !rising || last != Some(tokens) {
        return Err(format!(
            "cumulative lengths {cumulative:?} do not rise from 0 to the {tokens} tokens of the step"
        ));
    }
    let outside = |index: &&i32| usize::try_from(**index).map_or(true, |index| index >= tokens);
    match inputs.logits_indices.iter().find(outside) {
        Some(index) => Err(format!(
            "logits index {index} is outside of the {tokens} tokens of the step"
        )),
        None => Ok(()),
    }
}

/// Checkpoint outputs have slots exactly on a step where some row captures: binding them on any other would fail
/// inside ONNX Runtime, and leaving them unbound where a row captures would compute them for nothing.
fn captures(inputs: &StepInputs, state: &StateSpec, capture: Capture) -> Result<(), String> {
    let capacity = state
        .fixed
        .iter()
        .filter_map(|fixed| fixed.checkpoints.as_ref())
        .map(|c| c.count)
        .min();
    let most = inputs.capture_counts.iter().copied().max().unwrap_or(0);
    if inputs.capture_counts.iter().any(|count| *count < 0) {
        return Err(format!(
            "a negative capture count in {:?}",
            inputs.capture_counts
        ));
    }
    match (capture, most > 0, capacity) {
        (Capture::On, true, Some(_)) | (Capture::Off, false, _) => Ok(()),
        (Capture::On, _, None) => {
            Err("a capture was asked for, but the graph has no checkpoint outputs".to_owned())
        }
        (Capture::On, false, _) => Err("a capture was asked for, but no row captures".to_owned()),
        (Capture::Off, true, _) => Err(format!(
            "rows capture up to {most} tokens in a step that does not capture"
        )),
    }
}
