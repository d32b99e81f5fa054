//! Who makes the states that no operator wrote: those of rows that keep less than they ran.
//!
//! What is made of what is decided before ([`super::select`], [`CaptureKind::take`](super::capture::CaptureKind)); here
//! it is done. Graphs on the device, where the host cannot touch the memory, may fail, so they run while the step is
//! prepared and write inactive rows. What the host has checked cannot fail: such a state is owed once the step is published,
//! and made over the one before by whoever reads it first.

pub(super) mod host;
mod trial;

use super::capture::{Take, wrong};
use super::error::{PoolError, StateError};
use super::pool::Tensor;
use crate::device::Device;
use crate::exec::{CommitGraphs, CommitRows};
use crate::kernels::OwedState;
use crate::model::FixedBuffers;
use crate::model::spec::{FixedSpec, StateSpec};
use genai_config_schema::StateLayout;

pub(crate) use trial::trial;

/// Who commits.
#[derive(Debug)]
pub(crate) enum Committer {
    /// Whoever reads them first, in memory that the host can reach.
    Host,
    /// Graphs, on the device that holds the memory.
    Graphs(CommitGraphs),
}

/// One row of a step whose state is not the one that the operator wrote.
#[derive(Clone, Copy, Debug)]
pub(super) struct Partial {
    /// Row of the step.
    pub(super) batch: usize,
    /// Bank row that holds the state before the step.
    pub(super) read: usize,
    /// Bank row that takes the state: another for graphs; for the host one that holds the state before the step by then.
    pub(super) write: usize,
    /// What makes the state.
    pub(super) take: Take,
}

impl Committer {
    /// Graphs where there are any; otherwise the host, if it can do it.
    pub(super) fn of(
        spec: &StateSpec,
        device: &dyn Device,
        graphs: Option<CommitGraphs>,
    ) -> Result<Self, PoolError> {
        let captured = || {
            let tensors = (0..).zip(&spec.fixed);
            tensors.filter(|(_, spec)| spec.checkpoints.is_some())
        };
        let no_commit = |spec: &FixedSpec| PoolError::NoCommit {
            input: spec.input.clone(),
            layer: spec.layer,
            device: device.name(),
        };
        if let Some(graphs) = graphs {
            return match captured().find(|(tensor, _)| !graphs.has(*tensor)) {
                Some((_, spec)) => Err(no_commit(spec)),
                None => Ok(Self::Graphs(graphs)),
            };
        }
        for (_, spec) in captured() {
            if !device.host_visible() {
                return Err(no_commit(spec));
            }
            if spec.layout != StateLayout::Bank {
                return Err(wrong(spec, "state_layout", "bank", "rows"));
            }
        }
        Ok(Self::Host)
    }

    /// Whether states are made where they were before the step, once it is published.
    pub(super) fn is_in_place(&self) -> bool {
        matches!(self, Self::Host)
    }

    /// Does what may fail for some rows of a step of `step_rows` rows: of each tensor the rows that `rows` lists for it.
    /// Returns what is owed of each once the step is published; nothing where graphs have made it.
    ///
    /// # Errors
    /// Memory that is not what the specification says, and the failure of a graph.
    pub(super) fn prepare(
        &mut self,
        tensors: &[Tensor],
        (step_rows, rows): (usize, &[Vec<Partial>]),
        buffers: &mut [FixedBuffers],
    ) -> Result<Vec<Vec<OwedState>>, StateError> {
        let graphs = match self {
            Self::Host => return host::owed(tensors, (step_rows, rows), buffers),
            Self::Graphs(graphs) => graphs,
        };
        let each = tensors.iter().zip(rows).zip(buffers).enumerate();
        for (index, ((tensor, rows), buffers)) in
            each.filter(|(_, ((_, rows), _))| !rows.is_empty())
        {
            graphs
                .run((index, &tensor.spec), step_rows, &listed(rows), buffers)
                .map_err(|source| StateError::Commit {
                    tensor: index,
                    source,
                })?;
        }
        Ok(Vec::new())
    }
}

/// Rows as a commit graph takes them.
fn listed(rows: &[Partial]) -> CommitRows {
    // A row index that does not fit is out of every range, so that the graph refuses it.
    let index = |row: usize| i64::try_from(row).unwrap_or(i64::MAX);
    let list = |of: fn(&Partial) -> usize| rows.iter().map(|row| index(of(row))).collect();
    CommitRows {
        batch_rows: list(|row| row.batch),
        read_rows: list(|row| row.read),
        write_rows: list(|row| row.write),
        taken: list(|row| match row.take {
            Take::Nothing => 0,
            Take::Copy(slot) => slot,
            Take::Replay(kept) => kept,
        }),
    }
}
