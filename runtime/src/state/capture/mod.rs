//! What a tensor's checkpoints hold, and how a state is made from them: a module per kind.
//!
//! | kind | a slot holds | the state after `k` kept tokens |
//! |---|---|---|
//! | [`Dense`] | the state after a token | the slot that `select` names |
//! | [`Append`] | the input value of every channel | the first `k` values, appended to the samples before the step |
//! | [`Delta`] | decay, key and delta of a token | the first `k` transitions, replayed over the state before the step |
//! | [`History`] | the ids that are looked back on after a token | slot `k - 1` |

mod append;
mod delta;
mod dense;
mod history;

use super::error::PoolError;
use super::select::Source;
use crate::kernels::Replay;
use crate::model::spec::{CheckpointSpec, FixedSpec};
use append::Append;
use delta::Delta;
use dense::Dense;
use genai_config_schema::{CheckpointAlignment, CheckpointForm, StateOperator};
use history::History;

/// What the checkpoints of one tensor hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CaptureKind {
    Dense(Dense),
    Append(Append),
    Delta(Delta),
    History(History),
}

/// What is done to have the state of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Take {
    /// Nothing: the operator wrote it.
    Nothing,
    /// This checkpoint slot is copied.
    Copy(usize),
    /// So many transitions, from the first on, are applied to the state before the step.
    Replay(usize),
}

impl CaptureKind {
    /// Checks the checkpoint output of `spec` against its operator and shape.
    pub(super) fn of(spec: &FixedSpec, checkpoints: &CheckpointSpec) -> Result<Self, PoolError> {
        let kind = match (checkpoints.form, spec.operator) {
            (CheckpointForm::State, _) => Self::Dense(Dense::of(spec)?),
            (CheckpointForm::Update, StateOperator::TokenHistory) => {
                Self::History(History::of(spec)?)
            }
            (CheckpointForm::Update, StateOperator::CausalConv) => Self::Append(Append::of(spec)?),
            (CheckpointForm::Update, StateOperator::GatedDeltaNet) => Self::Delta(Delta::of(spec)?),
        };
        let right = checkpoints.alignment == CheckpointAlignment::Right;
        if right && checkpoints.form == CheckpointForm::Update {
            return Err(wrong(spec, "checkpoint_alignment", "left", "right"));
        }
        if checkpoints.count == 0 {
            return Err(wrong(spec, "checkpoint_count", "at least 1", 0));
        }
        let width = kind.width();
        if checkpoints.width != width {
            return Err(wrong(spec, "checkpoint width", width, checkpoints.width));
        }
        Ok(kind)
    }

    /// Elements of one slot of one row.
    pub(super) fn width(self) -> usize {
        match self {
            Self::Dense(kind) => kind.width(),
            Self::Append(kind) => kind.width(),
            Self::Delta(kind) => kind.width(),
            Self::History(kind) => kind.width(),
        }
    }

    /// What makes the state of `source`.
    pub(super) fn take(self, source: Source) -> Take {
        match (source, self) {
            (Source::Final, _) => Take::Nothing,
            (Source::Slot(slot), _) => Take::Copy(slot),
            (Source::Replay(kept), Self::Append(_) | Self::Delta(_)) => Take::Replay(kept),
            (Source::Replay(kept), Self::History(_) | Self::Dense(_)) => {
                Take::Copy(kept.saturating_sub(1))
            }
        }
    }

    /// What a transition does to a state; `None` for a kind that is copied.
    pub(super) fn replay(self) -> Option<Replay> {
        match self {
            Self::Append(kind) => Some(kind.replay()),
            Self::Delta(kind) => Some(kind.replay()),
            Self::Dense(_) | Self::History(_) => None,
        }
    }
}

/// Elements of one state row.
pub(super) fn row_elements(spec: &FixedSpec) -> Result<usize, PoolError> {
    let elements = spec
        .row_shape
        .iter()
        .try_fold(1usize, |n, d| n.checked_mul(*d));
    elements
        .filter(|n| *n > 0)
        .ok_or_else(|| wrong_row(spec, "positive and finite"))
}

/// The refusal of a row shape.
fn wrong_row(spec: &FixedSpec, expected: &str) -> PoolError {
    wrong(spec, "row shape", expected, format!("{:?}", spec.row_shape))
}

/// The refusal of what a tensor is declared as.
pub(super) fn wrong(
    spec: &FixedSpec,
    key: &'static str,
    expected: impl ToString,
    found: impl ToString,
) -> PoolError {
    PoolError::Tensor {
        input: spec.input.clone(),
        layer: spec.layer,
        key,
        expected: expected.to_string(),
        found: found.to_string(),
    }
}
