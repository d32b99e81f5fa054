//! Rows that branch off the state of a request's own row: candidates of the decoder, one of which may be kept, and
//! branches of the draft head, which never are.

use super::composite::StepRow;
use super::error::StepError;
use super::faults::Faults;
use super::participant::Seat;
use super::phase::Reserved;
use super::step::Step;
use crate::kv::{KvError, KvReservation, PagedBinding};
use crate::state::StateReservation;
use std::num::NonZeroUsize;

/// The reservations of fixed state, paged cache and the draft head's cache, of which own rows have had their share.
type Seats<'s, 'a> = (
    &'s mut Option<Seat<StateReservation<'a>>>,
    &'s mut Option<Seat<KvReservation<'a>>>,
    &'s mut Option<Seat<KvReservation<'a>>>,
);

/// Claims what branches need beside the own rows, which come first: no branch costs any of them its room.
pub(super) fn reserve(
    (state, kv, head): Seats<'_, '_>,
    rows: &[StepRow],
    faults: &Faults,
) -> Result<(), StepError> {
    for (index, row) in rows.iter().enumerate() {
        for (branch, tokens) in row.branches.iter().enumerate() {
            faults.call("reserve branch")?;
            if let Some(state) = state {
                let tokens = NonZeroUsize::new(*tokens).ok_or(StepError::Empty)?;
                state.reserve_branch(index, tokens)?;
            }
            if let Some(kv) = kv {
                kv.reserve_branch(index, *tokens)?;
                faults.call("copy tail")?;
                kv.copy_tail(index, branch, 0)?;
            }
        }
    }
    for (index, row) in rows.iter().enumerate() {
        for positions in &row.head_branches {
            let Some(head) = head else { break };
            faults.call("reserve head branch")?;
            match head.reserve_branch(index, *positions) {
                Err(KvError::OutOfBlocks { .. }) => break,
                claimed => claimed.map_err(StepError::Head)?,
            }
        }
    }
    Ok(())
}

impl Step<'_, Reserved> {
    /// Branches of the draft head that a row was granted: the first ones of those it asked for.
    pub(crate) fn head_branches(&self, row: usize) -> usize {
        let (_, _, head) = self.seats();
        head.map_or(0, |head| head.branches(row))
    }

    /// Lets a branch of the draft head go on where the row's own positions end: `positions` of them, from the head's
    /// committed length on, have been written in this step. What lies before, up to there, reads the same from the branch
    /// afterwards; what the branch writes is its own, and is given back with the step.
    ///
    /// # Errors
    /// Rows and branches that were not granted; more positions than reserved; memory that the host cannot reach.
    pub(crate) fn branch_head(
        &mut self,
        row: usize,
        branch: usize,
        positions: usize,
    ) -> Result<(), StepError> {
        self.faults().call("copy head tail")?;
        let request = self.requests().nth(row);
        let (_, _, head) = self.seats_mut();
        match (head, request) {
            (Some(head), _) => {
                let copied = head.copy_tail(row, branch, positions);
                copied.map_err(StepError::Head)
            }
            (None, Some(request)) => Err(StepError::NoHead(request)),
            (None, None) => Err(StepError::Empty),
        }
    }

    /// As [`Self::head_binding`], of rows (`None`) and of their branches. A branch that was not granted reads nothing.
    pub(crate) fn head_binding_of(&self, rows: &[(usize, Option<usize>)]) -> Option<PagedBinding> {
        let (_, _, head) = self.seats();
        let candidate =
            |(row, branch): &(usize, Option<usize>)| (*row, branch.map_or(0, |b| b + 1));
        Some(head?.binding_of(rows.iter().map(candidate)))
    }
}
