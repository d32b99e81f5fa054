//! Commit graphs: they take the banks and checkpoints of the tensors they serve, and lists of rows.

use super::pattern::{Axis, Pattern, Side, find};
use super::report::{ContractCode, Findings};
use super::{CommitContract, GraphFile};
use crate::exec::CommitTask;
use crate::exec::commit::{BANK, CHECKPOINTS, COMMITTED};
use crate::model::spec::FixedSpec;
use crate::model::tensor_spec::DataType;
use genai_config_schema::FixedTensor;

/// Checks every commit graph against all tensors that it serves. `states` are those of `tensors`, in their order.
pub(super) fn check(
    graphs: &[GraphFile],
    tensors: &[FixedTensor],
    states: &[FixedSpec],
    findings: &mut Findings,
) -> Vec<CommitContract> {
    let one = |graph: &GraphFile| check_one(graph, tensors, states, findings);
    graphs.iter().filter_map(one).collect()
}

fn check_one(
    graph: &GraphFile,
    tensors: &[FixedTensor],
    states: &[FixedSpec],
    findings: &mut Findings,
) -> Option<CommitContract> {
    findings.start(&graph.name);
    let file = Some(graph.name.as_str());
    let served = tensors.iter().zip(states).enumerate();
    let served = served.filter(|(_, (tensor, _))| tensor.commit_filename.as_deref() == file);
    let (indices, served): (Vec<_>, Vec<_>) =
        served.map(|(index, (_, state))| (index, state)).unzip();
    let task = CommitTask::of(served.first()?)?;
    for state in &served {
        check_tensor(graph, state, findings);
    }
    for list in task.lists() {
        let pattern = Pattern::new(DataType::I64, [Axis::Run("commits")]);
        require(graph, Side::Input, list, &pattern, findings);
    }
    let known = |name: &str| [BANK, CHECKPOINTS].contains(&name) || task.lists().contains(&name);
    for input in graph.io.inputs.iter().filter(|input| !known(&input.name)) {
        findings.add(ContractCode::P12, &input.name, "no such input", input);
    }
    Some(CommitContract {
        file: graph.name.clone(),
        task,
        tensors: indices,
    })
}

fn check_tensor(graph: &GraphFile, state: &FixedSpec, findings: &mut Findings) {
    let extent = |extent: &usize| Axis::Is(u64::try_from(*extent).unwrap_or(u64::MAX));
    let rows = [Axis::Run("bank_rows")].into_iter();
    let row = state.row_shape.iter().map(extent);
    let bank = Pattern::new(
        DataType::from(state.element),
        rows.chain(row).collect::<Vec<_>>(),
    );
    require(graph, Side::Input, BANK, &bank, findings);
    require(graph, Side::Output, COMMITTED, &bank, findings);
    let axes = state.checkpoint_axes().unwrap_or_default();
    let axis = |axis: &Option<usize>| axis.as_ref().map_or(Axis::Run("rows"), extent);
    let axes: Vec<_> = axes.iter().map(axis).collect();
    let checkpoints = Pattern::new(DataType::from(state.element), axes);
    require(graph, Side::Input, CHECKPOINTS, &checkpoints, findings);
}

fn require(
    graph: &GraphFile,
    side: Side,
    name: &str,
    pattern: &Pattern<'_>,
    findings: &mut Findings,
) {
    if let Some(spec) = find(&graph.io, side, name, ContractCode::P12, findings) {
        pattern.require(spec, ContractCode::P12, findings);
    }
}
