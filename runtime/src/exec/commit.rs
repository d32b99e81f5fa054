//! Commit graphs: the states of kept prefixes, made where the banks are.
//!
//! A graph serves all tensors of one kind and geometry, each with its own bank. The bank is bound as input and output at
//! once, by the same value, so that the graph writes the rows it commits and touches no other.

use super::bound_run::BoundRun;
use super::buffer_value::BufferValue;
use super::session::Session;
use super::tensor_value::TensorValue;
use crate::error::RunError;
use crate::model::FixedBuffers;
use crate::model::spec::FixedSpec;
use genai_config_schema::{CheckpointForm, StateOperator};

/// The bank before and after.
pub(crate) const BANK: &str = "bank";
/// Checkpoints as the decoder wrote them.
pub(crate) const CHECKPOINTS: &str = "checkpoints";
/// Row of the step, per row to commit.
pub(crate) const BATCH_ROWS: &str = "batch_rows";
/// Bank row that takes the state.
pub(crate) const WRITE_ROWS: &str = "write_rows";
/// Bank row that holds the state before the step.
pub(crate) const READ_ROWS: &str = "read_rows";
/// Transitions to replay.
pub(crate) const KEPT: &str = "kept";
/// Checkpoint slot to copy.
pub(crate) const SLOTS: &str = "slots";
/// The bank with the committed rows.
pub(crate) const COMMITTED: &str = "committed";

/// What a commit graph does, which decides what it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitTask {
    /// Copies a slot.
    Copy,
    /// Replays transitions over the state before the step.
    Replay,
}

impl CommitTask {
    /// The task of the graph of a tensor; `None` for one without checkpoints.
    pub(crate) fn of(spec: &FixedSpec) -> Option<Self> {
        let checkpoints = spec.checkpoints.as_ref()?;
        Some(match (checkpoints.form, spec.operator) {
            (CheckpointForm::State, _) | (CheckpointForm::Update, StateOperator::TokenHistory) => {
                Self::Copy
            }
            (CheckpointForm::Update, StateOperator::CausalConv | StateOperator::GatedDeltaNet) => {
                Self::Replay
            }
        })
    }

    /// Int64 inputs with an entry per row to commit.
    pub(crate) fn lists(self) -> &'static [&'static str] {
        match self {
            Self::Copy => &[BATCH_ROWS, WRITE_ROWS, SLOTS],
            Self::Replay => &[BATCH_ROWS, WRITE_ROWS, KEPT, READ_ROWS],
        }
    }
}

/// The rows that one run commits, an entry each. All graph inputs are int64: what scatters takes nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommitRows {
    pub(crate) batch_rows: Vec<i64>,
    pub(crate) read_rows: Vec<i64>,
    pub(crate) write_rows: Vec<i64>,
    /// Slots or numbers of transitions, as the task of the graph asks.
    pub(crate) taken: Vec<i64>,
}

impl CommitRows {
    fn list(&self, name: &str) -> &[i64] {
        match name {
            BATCH_ROWS => &self.batch_rows,
            READ_ROWS => &self.read_rows,
            WRITE_ROWS => &self.write_rows,
            _ => &self.taken,
        }
    }
}

/// The commit graphs of a decoder.
#[derive(Debug)]
pub(crate) struct CommitGraphs {
    graphs: Vec<CommitGraph>,
    /// In manifest order.
    tensors: Vec<Option<Bound>>,
}

#[derive(Debug)]
struct CommitGraph {
    run: BoundRun,
    file: String,
    task: CommitTask,
}

/// A tensor, its graph, and values over its buffers, made when first used and kept while these stay the same.
#[derive(Debug)]
struct Bound {
    graph: usize,
    bank: BufferValue,
    checkpoints: BufferValue,
}

impl CommitGraphs {
    /// No graphs yet, for so many tensors.
    pub(crate) fn new(tensors: usize) -> Self {
        Self {
            graphs: Vec::new(),
            tensors: (0..tensors).map(|_| None).collect(),
        }
    }

    /// Adds the graph of some tensors, by their place in the manifest. Its contract has been checked.
    ///
    /// # Errors
    /// A name that ONNX Runtime cannot take.
    pub(crate) fn add(
        &mut self,
        session: Session,
        task: CommitTask,
        tensors: &[usize],
    ) -> ort::Result<()> {
        let file = session.file().file_name().unwrap_or_default();
        let file = file.to_string_lossy().into_owned();
        let lists = task.lists().iter().copied();
        let inputs = [BANK, CHECKPOINTS].into_iter().chain(lists);
        let inputs = inputs.map(str::to_owned).collect();
        let run = BoundRun::new(session, inputs, vec![COMMITTED.to_owned()])?;
        for tensor in tensors {
            if let Some(place) = self.tensors.get_mut(*tensor) {
                *place = Some(Bound {
                    graph: self.graphs.len(),
                    bank: BufferValue::default(),
                    checkpoints: BufferValue::default(),
                });
            }
        }
        self.graphs.push(CommitGraph { run, file, task });
        Ok(())
    }

    /// Whether there is a graph for a tensor.
    pub(crate) fn has(&self, tensor: usize) -> bool {
        self.tensors.get(tensor).is_some_and(Option::is_some)
    }

    /// Commits rows of one tensor of a step of `step_rows` rows. Rows of the bank that are not written stay untouched.
    ///
    /// # Errors
    /// A tensor without a graph, buffers that are smaller than the step, and whatever ONNX Runtime refuses, a row
    /// outside of a tensor on the CPU among it; rows that were to be written are unspecified then.
    pub(crate) fn run(
        &mut self,
        (tensor, spec): (usize, &FixedSpec),
        step_rows: usize,
        rows: &CommitRows,
        buffers: &mut FixedBuffers,
    ) -> Result<(), RunError> {
        let bound = self.tensors.get_mut(tensor).and_then(Option::as_mut);
        let graph = bound.and_then(|bound| Some((self.graphs.get_mut(bound.graph)?, bound)));
        let missing = || RunError::Step {
            graph: spec.input.clone(),
            reason: "no graph commits this state".to_owned(),
        };
        let (graph, bound) = graph.ok_or_else(missing)?;
        let shape = spec.checkpoint_shape(step_rows).ok_or_else(missing)?;
        let staging = buffers.checkpoints.as_mut().ok_or_else(missing)?;
        bound
            .bank
            .bind(&mut buffers.bank)
            .and_then(|()| bound.checkpoints.bind_front(staging, &shape))
            .and_then(|()| graph.run(bound, rows))
            .map_err(|error| RunError::Failed {
                graph: graph.file.clone(),
                reason: error.to_string(),
            })
    }
}

impl CommitGraph {
    fn run(&mut self, bound: &Bound, rows: &CommitRows) -> ort::Result<()> {
        let list = |name: &&str| {
            let list = rows.list(name);
            TensorValue::input(list, &[list.len()])
        };
        let lists: Vec<_> = self
            .task
            .lists()
            .iter()
            .map(list)
            .collect::<ort::Result<_>>()?;
        let bank = bound.bank.get()?;
        let mut taken = vec![bank, bound.checkpoints.get()?];
        taken.extend(&lists);
        self.run.run(&taken, &[(0, bank)])
    }
}

#[cfg(test)]
#[path = "commit_tests.rs"]
pub(crate) mod tests;
