//! Commit graphs: the state after a kept prefix, made on the device that holds the state.
//!
//! A speculative step runs more tokens than it keeps. Where the host cannot touch the memory of states, a small graph
//! puts the state after the kept tokens into its row of the bank: one graph per kind and geometry of state, which all
//! layers of a state group share, run once per layer with that layer's bank. All rows of a step are committed in one
//! run, each with a kept count of its own; there is no control flow, and no operator beyond ONNX's.
//!
//! A file per kind, not one for all: ONNX Runtime runs all of a graph, and wants all of its inputs.
//!
//! | checkpoints | what the graph does |
//! |---|---|
//! | `state` | copies a slot |
//! | `update` of a convolution | appends the kept values, and takes the last `kernel - 1` samples |
//! | `update` of Gated DeltaNet | decays the state, and adds keys times deltas in one batched product |
//! | `update` of a token history | copies the last kept entry |
//!
//! Strides come from the capacity, never from what is kept, and entries beyond the kept ones are replaced before any
//! arithmetic: what an operator did not write may be anything.

mod append;
mod delta;
mod select;
#[cfg(test)]
mod tests;

use genai_config_schema::{CheckpointForm, StateDecay, StateOperator};
use pawl_models::ModelDescription;

use crate::contract::names::commit as names;
use crate::contract::symbols;
use crate::error::BuildError;
use crate::fixed_groups::{FixedKind, fixed_groups};
use crate::graph::ir::{Dim, Dtype, Graph};
use crate::graph::{GraphBuilder, Place, Value};
use crate::ops;
use crate::options::BuildOptions;
use crate::plan::Plan;

/// Version of the ONNX operators: the first that has all that are used, which every provider has had for years.
const OPSET: i64 = 18;

/// The commit graphs of a model; none for a target whose states the host can reach.
///
/// # Errors
/// A description that contradicts itself.
pub(crate) fn emit(
    description: &ModelDescription,
    options: &BuildOptions,
) -> Result<Vec<Graph>, BuildError> {
    let plan = Plan::new(description, options)?;
    let Some(checkpoints) = plan.checkpoints else {
        return Ok(Vec::new());
    };
    let mut graphs = Vec::new();
    for group in fixed_groups(&plan)? {
        if let Some(file) = group.commit_file {
            let subject = Subject {
                kind: group.kind,
                form: checkpoints.form,
                capacity: u64::from(checkpoints.count),
                // The operators of no target have a decay per key element.
                decay: StateDecay::PerHead,
            };
            graphs.push(graph(file, &subject)?);
        }
    }
    Ok(graphs)
}

/// What a commit graph is for.
#[derive(Clone, Debug)]
struct Subject {
    kind: FixedKind,
    form: CheckpointForm,
    /// Checkpoint slots of a row.
    capacity: u64,
    decay: StateDecay,
}

fn graph(file: String, subject: &Subject) -> Result<Graph, BuildError> {
    let mut graph = GraphBuilder::new(file).with_opset(OPSET);
    let g = &mut graph;
    let rows = Rows::declare(g, subject)?;
    let states = match (subject.form, subject.kind.operator) {
        (CheckpointForm::State, _) => select::slot(g, subject, &rows)?,
        (CheckpointForm::Update, StateOperator::TokenHistory) => select::entry(g, subject, &rows)?,
        (CheckpointForm::Update, StateOperator::CausalConv) => append::replay(g, subject, &rows)?,
        (CheckpointForm::Update, StateOperator::GatedDeltaNet) => delta::replay(g, subject, &rows)?,
    };
    let written = ops::scatter_rows(g, "commit", &rows.bank, &rows.write, &states)?;
    g.output(Place::State, names::COMMITTED, &written);
    graph.finish()
}

/// The inputs that every commit graph has.
#[derive(Debug)]
struct Rows {
    /// `[bank_rows, row...]`.
    bank: Value,
    /// `i64 [commits]`: the row of the step.
    batch: Value,
    /// `i64 [commits]`: the row of the bank that takes the state.
    write: Value,
}

impl Rows {
    fn declare(g: &mut GraphBuilder, subject: &Subject) -> Result<Self, BuildError> {
        let FixedKind {
            dtype, row_shape, ..
        } = &subject.kind;
        let bank = g.input(names::BANK, *dtype, tensor([symbols::BANK_ROWS], row_shape))?;
        Ok(Self {
            bank,
            batch: commits(g, names::BATCH_ROWS)?,
            write: commits(g, names::WRITE_ROWS)?,
        })
    }
}

/// What a replay takes besides.
#[derive(Debug)]
struct Replay {
    /// The states before the step, `[commits, row...]`.
    before: Value,
    /// The captured transitions, `[commits, ...]`.
    transitions: Value,
    /// `i64 [commits, 1, 1]`.
    kept: Value,
}

impl Replay {
    /// `shape` is that of the captured transitions of a row.
    fn declare(
        g: &mut GraphBuilder,
        subject: &Subject,
        rows: &Rows,
        shape: &[u64],
    ) -> Result<Self, BuildError> {
        let dims = tensor([symbols::ROWS], shape);
        let checkpoints = g.input(names::CHECKPOINTS, subject.kind.dtype, dims)?;
        let read = commits(g, names::READ_ROWS)?;
        let kept = commits(g, names::KEPT)?;
        Ok(Self {
            before: ops::gather_rows(g, "before", &rows.bank, &read)?,
            transitions: ops::gather_rows(g, "transitions", &checkpoints, &rows.batch)?,
            kept: ops::reshape_rows(g, "kept_tokens", &kept, &[1, 1])?,
        })
    }
}

fn commits(g: &mut GraphBuilder, name: &str) -> Result<Value, BuildError> {
    g.input(name, Dtype::I64, [symbols::COMMITS])
}

/// Leading axes and static ones.
fn tensor<const N: usize>(leading: [Dim; N], rest: &[u64]) -> Vec<Dim> {
    let rest = rest.iter().map(|extent| Dim::Static(*extent));
    leading.into_iter().chain(rest).collect()
}

/// `i64 [1, count, 1]`: 0, 1, 2 and so on.
fn positions(g: &mut GraphBuilder, name: &str, count: u64) -> Result<Value, BuildError> {
    let bytes = (0..count).flat_map(u64::to_le_bytes).collect();
    g.constant(name, Dtype::I64, &[1, count, 1], bytes)
}
