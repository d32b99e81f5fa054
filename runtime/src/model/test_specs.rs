//! Fixed tensors for tests, by operator, form and layout.

use super::spec::{CheckpointSpec, FixedSpec};
use crate::device::ElementType;
use genai_config_schema::{
    CheckpointAlignment, CheckpointForm, StateDecay, StateLayout, StateOperator,
};

/// A tensor whose checkpoints have `count` slots in the layout of the host, aligned left, in the form `update`.
pub(crate) fn tensor(operator: StateOperator, row_shape: &[usize], count: usize) -> FixedSpec {
    let mut spec = FixedSpec {
        layer: 3,
        operator,
        layout: StateLayout::Bank,
        element: ElementType::F32,
        fresh: 0,
        input: "past".to_owned(),
        output: "present".to_owned(),
        row_shape: row_shape.to_vec(),
        key_heads: None,
        decay: StateDecay::PerHead,
        checkpoints: Some(CheckpointSpec {
            output: "checkpoints".to_owned(),
            count,
            form: CheckpointForm::Update,
            alignment: CheckpointAlignment::Left,
            width: 0,
        }),
    };
    settle(&mut spec);
    spec
}

/// A convolution of so many channels and samples.
pub(crate) fn conv(row: [usize; 2], count: usize) -> FixedSpec {
    tensor(StateOperator::CausalConv, &row, count)
}

/// Gated DeltaNet with a row `[value heads, value dim, key dim]`.
pub(crate) fn delta(key_heads: usize, row: [usize; 3], count: usize) -> FixedSpec {
    let mut spec = tensor(StateOperator::GatedDeltaNet, &row, count);
    spec.key_heads = Some(key_heads);
    settle(&mut spec);
    spec
}

/// With a decay per key element.
pub(crate) fn per_key(mut spec: FixedSpec) -> FixedSpec {
    spec.decay = StateDecay::PerKey;
    settle(&mut spec);
    spec
}

/// With slots that are states.
pub(crate) fn series(mut spec: FixedSpec, alignment: CheckpointAlignment) -> FixedSpec {
    if let Some(checkpoints) = &mut spec.checkpoints {
        checkpoints.form = CheckpointForm::State;
        checkpoints.alignment = alignment;
    }
    settle(&mut spec);
    spec
}

/// As operators have it that meet state by rows.
pub(crate) fn by_rows(mut spec: FixedSpec) -> FixedSpec {
    spec.layout = StateLayout::Rows;
    spec
}

/// Gives the checkpoints the width of their kind.
fn settle(spec: &mut FixedSpec) {
    let row: usize = spec.row_shape.iter().product();
    let keys = spec.key_heads.unwrap_or(1);
    let width = match (
        &spec.checkpoints.as_ref().unwrap().form,
        spec.row_shape.as_slice(),
    ) {
        (CheckpointForm::State, _) => row,
        (CheckpointForm::Update, &[values, value_dim, key_dim]) => {
            let decays = match spec.decay {
                StateDecay::PerHead => values,
                StateDecay::PerKey => values * key_dim,
            };
            decays + keys * key_dim + values * value_dim
        }
        (CheckpointForm::Update, shape) => shape[0],
    };
    spec.checkpoints.as_mut().unwrap().width = width;
}
