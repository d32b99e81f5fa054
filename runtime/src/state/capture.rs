//! What a tensor's checkpoints hold, and how a state is made from them.

use super::error::PoolError;
use super::replay::{DeltaDims, replay_conv, replay_delta};
use crate::model::spec::{CheckpointSpec, FixedSpec};
use genai_config_schema::{CheckpointAlignment, CheckpointForm, StateOperator};

/// How the checkpoints of one tensor become a committed state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CaptureKind {
    /// Each slot is a full state: copy it. Also the `update` form of a history of token ids.
    Dense,
    /// Each slot is the input value of every channel: append it.
    Append {
        /// `K - 1`.
        history: usize,
    },
    /// Each slot is decay, key and delta: apply them.
    Delta(DeltaDims),
}

impl CaptureKind {
    /// Checks the checkpoint output of `spec` against its operator and shape.
    pub(super) fn of(spec: &FixedSpec, checkpoints: &CheckpointSpec) -> Result<Self, PoolError> {
        let row: usize = row_elements(spec)?;
        let (kind, width) = match (checkpoints.form, spec.operator) {
            (CheckpointForm::State, _) | (CheckpointForm::Update, StateOperator::TokenHistory) => {
                (Self::Dense, row)
            }
            (CheckpointForm::Update, StateOperator::CausalConv) => append(spec)?,
            (CheckpointForm::Update, StateOperator::GatedDeltaNet) => delta(spec)?,
        };
        let right = checkpoints.alignment == CheckpointAlignment::Right;
        if right && checkpoints.form == CheckpointForm::Update {
            return Err(wrong(spec, "checkpoint_alignment", "left", "right"));
        }
        if checkpoints.count == 0 {
            return Err(wrong(spec, "checkpoint_count", "at least 1", 0));
        }
        if checkpoints.width != width {
            return Err(wrong(spec, "checkpoint width", width, checkpoints.width));
        }
        Ok(kind)
    }

    /// Applies one slot to `state`, which holds the state before its token (for a full state: anything).
    /// `None` when the slot has another width than the state needs.
    pub(super) fn apply(self, state: &mut [f32], slot: &[f32]) -> Option<()> {
        match self {
            Self::Dense if state.len() == slot.len() => state.copy_from_slice(slot),
            Self::Append { history } if slot.len().checked_mul(history) == Some(state.len()) => {
                replay_conv(state, history, slot);
            }
            Self::Delta(dims) if dims.state() == Some(state.len()) => {
                replay_delta(state, dims, dims.split(slot)?);
            }
            Self::Dense | Self::Append { .. } | Self::Delta(_) => return None,
        }
        Some(())
    }
}

/// Elements of one state row.
pub(super) fn row_elements(spec: &FixedSpec) -> Result<usize, PoolError> {
    let elements = spec
        .row_shape
        .iter()
        .try_fold(1usize, |n, d| n.checked_mul(*d));
    elements.filter(|n| *n > 0).ok_or_else(|| {
        wrong(
            spec,
            "row shape",
            "positive and finite",
            format!("{:?}", spec.row_shape),
        )
    })
}

fn append(spec: &FixedSpec) -> Result<(CaptureKind, usize), PoolError> {
    match *spec.row_shape.as_slice() {
        [channels, history] => Ok((CaptureKind::Append { history }, channels)),
        _ => Err(wrong(
            spec,
            "row shape",
            "[channels, history]",
            format!("{:?}", spec.row_shape),
        )),
    }
}

fn delta(spec: &FixedSpec) -> Result<(CaptureKind, usize), PoolError> {
    let shape = || {
        wrong(
            spec,
            "row shape",
            "[value heads, value dim, key dim]",
            format!("{:?}", spec.row_shape),
        )
    };
    let &[value_heads, value_dim, key_dim] = spec.row_shape.as_slice() else {
        return Err(shape());
    };
    let key_heads = spec.key_heads.unwrap_or(0);
    if key_heads == 0 || value_heads % key_heads != 0 {
        return Err(wrong(
            spec,
            "key heads",
            format!("a divisor of {value_heads}"),
            key_heads,
        ));
    }
    let dims = DeltaDims {
        value_heads,
        key_heads,
        value_dim,
        key_dim,
    };
    let width = dims.width().ok_or_else(shape)?;
    Ok((CaptureKind::Delta(dims), width))
}

fn wrong(
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
