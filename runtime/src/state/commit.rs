//! Who makes the states that no operator wrote: those of rows that keep less than they ran.
//!
//! What is made of what is decided before ([`super::select`], [`CaptureKind::take`](super::capture::CaptureKind)); here
//! it is done, in the inactive rows, by the host or, where the host cannot touch the memory, by graphs on the device.

use super::capture::{Take, wrong};
use super::error::{PoolError, StateError};
use super::layout::SeriesLayout;
use super::pool::Tensor;
use crate::device::{Buffer, Device};
use crate::exec::{CommitGraphs, CommitRows};
use crate::model::spec::{FixedBuffers, FixedSpec, StateSpec};
use genai_config_schema::StateLayout;

/// Who commits.
#[derive(Debug)]
pub(crate) enum Committer {
    /// The host, over memory that it can reach.
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
    /// Bank row that takes the state, always another.
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

    /// Makes the states of some rows of one tensor of a step of `step_rows` rows, in the banks.
    pub(super) fn commit(
        &mut self,
        (index, tensor): (usize, &Tensor),
        (step_rows, rows): (usize, &[Partial]),
        buffers: &mut FixedBuffers,
    ) -> Result<(), StateError> {
        match self {
            Self::Host => rows.iter().try_for_each(|row| {
                place(tensor, step_rows, row, buffers).ok_or(StateError::Memory {
                    tensor: index,
                    row: row.batch,
                })
            }),
            Self::Graphs(graphs) => graphs
                .run((index, &tensor.spec), step_rows, &listed(rows), buffers)
                .map_err(|source| StateError::Commit {
                    tensor: index,
                    source,
                }),
        }
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

/// Makes one state on the host. `None` when memory is not what the specification says.
fn place(
    tensor: &Tensor,
    step_rows: usize,
    row: &Partial,
    buffers: &mut FixedBuffers,
) -> Option<()> {
    let checkpoints = tensor.spec.checkpoints.as_ref()?;
    let series = SeriesLayout::new(checkpoints.count, step_rows, checkpoints.width);
    let staging = buffers.checkpoints.as_ref()?;
    match row.take {
        Take::Nothing => Some(()),
        Take::Copy(slot) => {
            let from = series.elements(slot, row.batch)?;
            let size = staging.element().size();
            let from = staging
                .as_bytes()?
                .get(from.start * size..from.end * size)?;
            let into = buffers.bank.row_bytes_mut(row.write)?;
            (into.len() == from.len()).then(|| into.copy_from_slice(from))
        }
        Take::Replay(kept) => {
            let staging = staging.as_f32()?;
            let slot = |slot| staging.get(series.elements(slot, row.batch)?);
            let slots: Vec<&[f32]> = (0..kept).map(slot).collect::<Option<_>>()?;
            let elements = buffers.bank.row_elements();
            let range = |row: usize| row * elements..(row + 1) * elements;
            let rows = [range(row.read), range(row.write)];
            let [before, into] = buffers.bank.as_f32_mut()?.get_disjoint_mut(rows).ok()?;
            tensor.kind?.replay(before, &slots, into)
        }
    }
}
