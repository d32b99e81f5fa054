//! What a tensor's checkpoints hold, and how a state is made from them.

use super::error::PoolError;
use super::select::Source;
use crate::kernels::{Heads, replay_conv, replay_delta};
use crate::model::spec::{CheckpointSpec, FixedSpec};
use genai_config_schema::{CheckpointAlignment, CheckpointForm, StateOperator};

/// How the checkpoints of one tensor become a committed state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CaptureKind {
    /// Each slot is a full state: copy it. Also the `update` form of a history of token ids.
    Dense,
    /// Each slot is the input value of every channel: append it.
    Append {
        /// `C`.
        channels: usize,
    },
    /// Each slot is decay, key and delta: apply them, with the arithmetic of the operator.
    Delta(Heads),
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

    /// Makes the state of `source` in `into` from the state before the step and the row's checkpoint slots.
    /// `slot(t)` is one slot of the row. `None`, and `into` unspecified, when memory has other extents than the
    /// specification.
    pub(super) fn restore<'s>(
        self,
        source: Source,
        before: &[f32],
        slot: impl Fn(usize) -> Option<&'s [f32]>,
        into: &mut [f32],
    ) -> Option<()> {
        let (first, count) = match source {
            Source::Final => return Some(()),
            Source::Slot(slot) => (slot, 1),
            Source::Replay(kept) => (0, kept),
        };
        let slots: Vec<&[f32]> = (first..first + count).map(slot).collect::<Option<_>>()?;
        let slot = |t: usize| slots.get(t).copied().unwrap_or_default();
        let last = slot(count.checked_sub(1)?);
        if before.len() != into.len() || self.width(into.len()) != Some(last.len()) {
            return None;
        }
        match self {
            Self::Dense => into.copy_from_slice(last),
            Self::Append { channels } => replay_conv(before, channels, slot, count, into),
            Self::Delta(heads) => replay_delta(heads, before, slot, count, into),
        }
        Some(())
    }

    /// Elements of a slot beside a state of `row` elements; `None` when the state has another extent.
    fn width(self, row: usize) -> Option<usize> {
        match self {
            Self::Dense => Some(row),
            Self::Append { channels } => row.is_multiple_of(channels.max(1)).then_some(channels),
            Self::Delta(heads) => (heads.state() == row).then(|| heads.transition().width()),
        }
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
        [channels, _] => Ok((CaptureKind::Append { channels }, channels)),
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
    let heads = Heads {
        keys: key_heads,
        values: value_heads,
        key_dim,
        value_dim,
    };
    // The three parts of a transition are each no larger than the state.
    heads.state().checked_mul(3).ok_or_else(shape)?;
    Ok((CaptureKind::Delta(heads), heads.transition().width()))
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
