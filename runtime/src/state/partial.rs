//! Rows that keep less than they ran: where their state comes from, and where it will be.

use super::capture::Take;
use super::commit::Partial;
use super::error::StateError;
use super::pool::Tensor;
use super::reservation::{ReservedRow, Run, StateReservation};
use super::select::{Query, SelectError, Source, select};
use genai_config_schema::{CheckpointAlignment, CheckpointForm};
use std::num::NonZeroUsize;

impl StateReservation<'_> {
    /// Decides, for a step that is prepared, which bank each partial row leaves active. A state that is made over the one
    /// before leaves the bank of that active; for an admission, which has none, the zero row is copied to where it is made.
    ///
    /// # Errors
    /// Memory that the host cannot reach.
    pub(super) fn choose_places(&mut self) -> Result<(), StateError> {
        if !self.pool.committer.is_in_place() {
            return Ok(());
        }
        for row in self.rows.iter_mut().filter(|row| row.is_partial()) {
            if let Some(before) = row.before {
                row.next = before.active;
                continue;
            }
            for (tensor, buffers) in self.pool.buffers.iter_mut().enumerate() {
                let copied = buffers.bank.copy_row(row.read, row.write);
                copied.ok_or(StateError::Memory {
                    tensor,
                    row: row.write,
                })?;
            }
        }
        Ok(())
    }
}

/// The rows whose state the operator of a tensor did not write, and where it comes from.
///
/// With `in_place` it is made where a resident has it; what an admission reads is read by all, so its place is the other
/// bank in any case.
pub(super) fn partial_rows(
    tensor: &Tensor,
    rows: &[ReservedRow],
    in_place: bool,
) -> Result<Vec<Partial>, StateError> {
    let mut partial = Vec::new();
    let mut first = 0;
    for (index, row) in rows.iter().enumerate() {
        let batch = first + row.winner;
        first += row.runs().count();
        let source = source(tensor, row, row.kept_tokens()?)
            .map_err(|source| StateError::Select { row: index, source })?;
        let take = tensor.kind.map_or(Take::Nothing, |kind| kind.take(source));
        if take != Take::Nothing {
            partial.push(Partial {
                batch,
                read: row.read,
                write: match in_place && row.before.is_some() {
                    true => row.read,
                    false => row.write,
                },
                take,
            });
        }
    }
    Ok(partial)
}

/// Asks [`select`] for one tensor of the row that is kept. A tensor without checkpoints has a final state only.
pub(super) fn source(
    tensor: &Tensor,
    row: &ReservedRow,
    kept: NonZeroUsize,
) -> Result<Source, SelectError> {
    let none = (CheckpointForm::State, CheckpointAlignment::Left, 0);
    let checkpoints = tensor.spec.checkpoints.as_ref();
    let (form, alignment, capacity) =
        checkpoints.map_or(none, |spec| (spec.form, spec.alignment, spec.count));
    let &Run {
        tokens,
        captured,
        final_written,
    } = row.winning();
    let captured = if checkpoints.is_some() { captured } else { 0 };
    select(&Query {
        form,
        alignment,
        capacity,
        captured,
        final_written,
        tokens,
        kept,
    })
}
