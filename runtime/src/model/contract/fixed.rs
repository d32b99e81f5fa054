//! Fixed state: convolutions, recurrent states, histories, and their checkpoints.

use super::paged::extent;
use super::pattern::{Axis, Pattern, Side, find, require_same};
use super::report::{ContractCode, Findings};
use crate::device;
use crate::model::graph_io::GraphIo;
use crate::model::spec::{CheckpointSpec, FixedSpec, transition_width};
use crate::model::tensor_spec::{DataType, TensorSpec};
use genai_config_schema::{
    CheckpointForm, Checkpoints, ElementType, FixedTensor, StateLayout, StateOperator,
};

/// Checks every fixed tensor; those with a usable state are described, in the manifest's order, with their element
/// types.
pub(super) fn check(
    graph: &GraphIo,
    tensors: &[FixedTensor],
    host: bool,
    findings: &mut Findings,
) -> (Vec<FixedSpec>, Vec<DataType>) {
    tensors
        .iter()
        .filter_map(|tensor| check_one(graph, tensor, host, findings))
        .unzip()
}

fn check_one(
    graph: &GraphIo,
    tensor: &FixedTensor,
    host: bool,
    findings: &mut Findings,
) -> Option<(FixedSpec, DataType)> {
    let input = find(
        graph,
        Side::Input,
        &tensor.input,
        ContractCode::M1,
        findings,
    );
    let output = find(
        graph,
        Side::Output,
        &tensor.output,
        ContractCode::M1,
        findings,
    );
    if let (Some(input), Some(output)) = (input, output) {
        require_same(input, output, findings);
    }
    let input = input?;
    let row = row_shape(tensor, input, host, findings)?;
    require_declared(tensor, input, &row, findings);
    let checkpoints = tensor.checkpoints.as_ref().and_then(|checkpoints| {
        check_checkpoints(graph, tensor, checkpoints, (input, &row), findings)
    });
    let spec = FixedSpec {
        layer: tensor.layer,
        operator: tensor.operator,
        layout: tensor.layout,
        element: element(input, findings)?,
        fresh: tensor.fresh_token_id,
        input: tensor.input.clone(),
        output: tensor.output.clone(),
        row_shape: row.iter().map(|dim| extent(*dim)).collect(),
        key_heads: tensor.key_heads.map(|heads| extent(heads.into())),
        decay: tensor.decay,
        checkpoints,
    };
    Some((spec, input.data_type))
}

/// What the configuration says about the size of a state is what memory is planned with before the graph is there.
fn require_declared(
    tensor: &FixedTensor,
    input: &TensorSpec,
    row: &[u64],
    findings: &mut Findings,
) {
    if !tensor.row_shape.is_empty() && tensor.row_shape != row {
        let (expected, found) = (&tensor.row_shape, row);
        findings.add(
            ContractCode::P7,
            &input.name,
            format!("of rows {expected:?}"),
            format!("of rows {found:?}"),
        );
    }
    require_element(tensor.element_type, input, findings);
}

/// The element type of a state, if it is one that the pool can hold.
fn element(input: &TensorSpec, findings: &mut Findings) -> Option<device::ElementType> {
    let element = input.data_type.element();
    if element.is_none() {
        let expected = "float32, float16, bfloat16, int64, int32 or int8";
        findings.add(ContractCode::P7, &input.name, expected, input.data_type);
    }
    element
}

/// A state is of the element type that its group declares, if it declares any.
pub(super) fn require_element(
    declared: Option<ElementType>,
    input: &TensorSpec,
    findings: &mut Findings,
) {
    if let Some(declared) = declared.map(DataType::from)
        && declared != input.data_type
    {
        findings.add(ContractCode::P7, &input.name, declared, input.data_type);
    }
}

/// Shape of one row, if the state has the rank of its operator and fixed extents.
fn row_shape(
    tensor: &FixedTensor,
    input: &TensorSpec,
    host: bool,
    findings: &mut Findings,
) -> Option<Vec<u64>> {
    let axes: &[Axis<'_>] = match tensor.operator {
        StateOperator::CausalConv => &[
            Axis::Any("rows"),
            Axis::Fixed("channels"),
            Axis::Fixed("kernel - 1"),
        ],
        StateOperator::GatedDeltaNet => &[
            Axis::Any("rows"),
            Axis::Fixed("value_heads"),
            Axis::Fixed("value_dim"),
            Axis::Fixed("key_dim"),
        ],
        StateOperator::TokenHistory => &[Axis::Any("rows"), Axis::Fixed("tokens")],
    };
    let fits = Pattern::new(None, axes).require(input, ContractCode::M7, findings);
    if let Some(rows) = input.fixed(0) {
        findings.add(
            ContractCode::M12,
            &input.name,
            "a row axis that is not fixed",
            format!("{rows} rows"),
        );
    }
    if tensor.operator == StateOperator::GatedDeltaNet && input.data_type != DataType::F32 {
        findings.add(
            ContractCode::M9,
            &input.name,
            DataType::F32,
            input.data_type,
        );
    } else if tensor.operator == StateOperator::TokenHistory {
        if !matches!(input.data_type, DataType::I64 | DataType::I32) {
            let expected = "int64 or int32";
            findings.add(ContractCode::P13, &input.name, expected, input.data_type);
        }
    } else if host && input.data_type != DataType::F32 {
        findings.add(
            ContractCode::P4,
            &input.name,
            DataType::F32,
            input.data_type,
        );
    }
    if !fits {
        return None;
    }
    (1..axes.len()).map(|axis| input.fixed(axis)).collect()
}

fn check_checkpoints(
    graph: &GraphIo,
    tensor: &FixedTensor,
    checkpoints: &Checkpoints,
    (state, row): (&TensorSpec, &[u64]),
    findings: &mut Findings,
) -> Option<CheckpointSpec> {
    let width = match checkpoints.form {
        CheckpointForm::State => row.iter().try_fold(1u64, |n, d| n.checked_mul(*d))?,
        CheckpointForm::Update => update_width(tensor, row, &state.name, findings)?,
    };
    let output = find(
        graph,
        Side::Output,
        &checkpoints.output,
        ContractCode::M4,
        findings,
    )?;
    let (code, pattern) = expected_output(tensor, checkpoints, (state, row), width);
    pattern.require(output, code, findings);
    if tensor.operator == StateOperator::GatedDeltaNet && output.data_type != DataType::F32 {
        findings.add(
            ContractCode::M9,
            &output.name,
            DataType::F32,
            output.data_type,
        );
    }
    Some(CheckpointSpec {
        output: checkpoints.output.clone(),
        count: extent(checkpoints.count.into()),
        form: checkpoints.form,
        alignment: checkpoints.alignment,
        width: extent(width),
    })
}

/// Elements of one transition.
fn update_width(
    tensor: &FixedTensor,
    row: &[u64],
    name: &str,
    findings: &mut Findings,
) -> Option<u64> {
    let key_heads = tensor.key_heads.map_or(0, u64::from);
    if let (StateOperator::GatedDeltaNet, [heads, ..]) = (tensor.operator, row)
        && (key_heads == 0 || heads % key_heads != 0)
    {
        findings.add(
            ContractCode::M10,
            name,
            format!("value heads that are a multiple of {key_heads} key heads"),
            format!("{heads} value heads"),
        );
    }
    transition_width(tensor.operator, row, (Some(key_heads), tensor.decay))
}

/// The shape that an output of checkpoints must have. With `bank` the slot axis leads and is known only at run time:
/// it is empty on a step that captures nothing.
fn expected_output<'a>(
    tensor: &FixedTensor,
    checkpoints: &Checkpoints,
    (state, row): (&TensorSpec, &[u64]),
    width: u64,
) -> (ContractCode, Pattern<'a>) {
    let count = u64::from(checkpoints.count);
    let recurrent = tensor.operator == StateOperator::GatedDeltaNet;
    let update = if recurrent {
        ContractCode::M11
    } else {
        ContractCode::M8
    };
    // The element type of a recurrent update is reported under a code of its own.
    let data_type = (!recurrent).then_some(state.data_type);
    let (code, axes) = match (checkpoints.form, tensor.layout) {
        (CheckpointForm::State, layout) => {
            let slots = match layout {
                StateLayout::Bank => Axis::Run("slots"),
                StateLayout::Rows => Axis::Is(count),
            };
            let row = row.iter().map(|dim| Axis::Is(*dim));
            let axes = [slots, Axis::Any("rows")].into_iter().chain(row).collect();
            (ContractCode::M4, axes)
        }
        (CheckpointForm::Update, StateLayout::Bank) => (
            update,
            vec![Axis::Run("slots"), Axis::Any("rows"), Axis::Is(width)],
        ),
        (CheckpointForm::Update, StateLayout::Rows) if recurrent => (
            update,
            vec![Axis::Any("rows"), Axis::Is(count.saturating_mul(width))],
        ),
        (CheckpointForm::Update, StateLayout::Rows) => (
            update,
            vec![Axis::Any("rows"), Axis::Is(count), Axis::Is(width)],
        ),
    };
    (code, Pattern::new(data_type, axes))
}
