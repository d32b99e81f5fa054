//! One step as a value that walks through its phases.

use super::composite::{Health, Resident, Standing, StepRow};
use super::error::StepError;
use super::faults::Faults;
use super::outcome::{RowOutcome, StepOutcome};
use super::participant::{Participant, Permit, Seat};
use super::phase::{Accepted, In, Prepared, Reserved, Validated};
use crate::exec::{Capture, StepInputs};
use crate::ids::RequestId;
use crate::kv::{KvReservation, PagedBinding};
use crate::model::FixedBuffers;
use crate::model::spec::PagedBuffers;
use crate::state::{FixedBinding, StateReservation};
use std::num::NonZeroUsize;

/// One step in phase `Phase`: `reserve -> (run) -> accept -> validate -> prepare -> publish`.
///
/// Each phase consumes the one before and has only its own way forward, so that a wrong order does not compile:
/// [`Step::publish`] exists for `Step<'_, Prepared>` alone. Dropping a step, whether by an error, a cancellation or an
/// unwinding panic, discards it: every participant is bit for bit what it was.
pub(crate) struct Step<'a, Phase> {
    rows: Vec<Row>,
    state: Option<Seat<StateReservation<'a>>>,
    kv: Option<Seat<KvReservation<'a>>>,
    head: Option<Seat<KvReservation<'a>>>,
    guests: Vec<Seat<Box<dyn Participant + 'a>>>,
    standing: &'a mut Standing,
    phase: In<Phase>,
}

/// The reservations of fixed state, paged cache, and the draft head's cache.
pub(super) type Seats<'a> = (
    Option<Seat<StateReservation<'a>>>,
    Option<Seat<KvReservation<'a>>>,
    Option<Seat<KvReservation<'a>>>,
);

/// A row of the step and its committed length.
#[derive(Clone, Debug)]
pub(super) struct Row {
    request: RequestId,
    before: usize,
    tokens: usize,
    drafts: usize,
    /// Tokens of each branch.
    branches: Vec<usize>,
    kept: usize,
}

impl Row {
    pub(super) fn new(row: &StepRow, before: Option<usize>) -> Self {
        let &StepRow {
            request,
            tokens,
            drafts,
            ..
        } = row;
        let before = before.unwrap_or(0);
        Self {
            request,
            before,
            tokens,
            drafts,
            branches: row.branches.clone(),
            kept: tokens,
        }
    }

    /// Rows of the batch.
    pub(super) fn candidates(&self) -> usize {
        self.branches.len() + 1
    }

    /// Tokens that a candidate runs, if the row has it.
    fn tokens_of(&self, candidate: usize) -> Option<usize> {
        match candidate.checked_sub(1) {
            None => Some(self.tokens),
            Some(branch) => self.branches.get(branch).copied(),
        }
    }

    /// Checks a decision, and takes it over.
    fn decide(&mut self, keep: &Keep) -> Result<(), StepError> {
        let (request, candidate) = (self.request, keep.row);
        let tokens = self.tokens_of(candidate).ok_or(StepError::Candidate {
            request,
            candidate,
            candidates: self.candidates(),
        })?;
        let (kept, least) = (keep.tokens.get(), self.tokens.saturating_sub(self.drafts));
        if kept > tokens || kept < least {
            return Err(StepError::Kept {
                request,
                kept,
                tokens,
                least,
            });
        }
        self.kept = kept;
        Ok(())
    }

    fn outcome(&self) -> RowOutcome {
        let run = self.branches.iter().sum::<usize>() + self.tokens;
        RowOutcome {
            request: self.request,
            before: self.before,
            committed: self.before + self.kept,
            rejected: run.saturating_sub(self.kept),
        }
    }
}

/// What is kept of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keep {
    /// Which of its rows: 0 for its own, `i` for branch `i - 1`. The others are discarded.
    pub(crate) row: usize,
    /// Tokens of that row, from the first on: the known ones and the accepted drafts.
    pub(crate) tokens: NonZeroUsize,
    /// Positions of the draft head, from its committed length on; 0 without a head.
    pub(crate) head_tokens: usize,
}

/// State tensors for one run of the decoder.
#[derive(Debug)]
pub(crate) struct StepBuffers<'s> {
    /// In manifest order.
    pub(crate) paged: &'s mut [PagedBuffers],
    /// In manifest order.
    pub(crate) fixed: &'s mut [FixedBuffers],
}

impl<Phase> std::fmt::Debug for Step<'_, Phase> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let phase = std::any::type_name::<Phase>();
        f.debug_struct("Step")
            .field("phase", &phase)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl<'a> Step<'a, Reserved> {
    pub(super) fn new(
        rows: Vec<Row>,
        (state, kv, head): Seats<'a>,
        standing: &'a mut Standing,
    ) -> Self {
        Self {
            rows,
            state,
            kv,
            head,
            guests: Vec::new(),
            standing,
            phase: In::start(),
        }
    }

    /// Writes the inputs that the participants decide: past lengths, block table, bank rows, capture counts. The
    /// token inputs stay as they are.
    pub(crate) fn fill(&self, inputs: &mut StepInputs) {
        let FixedBinding {
            read_rows,
            write_rows,
            capture_counts,
        } = self.fixed_binding();
        let PagedBinding {
            past,
            block_table,
            max_blocks,
        } = self.paged_binding();
        inputs.past = past;
        inputs.block_table = block_table;
        inputs.max_blocks = max_blocks;
        inputs.read_rows = read_rows;
        inputs.write_rows = write_rows;
        inputs.capture_counts = capture_counts;
    }

    /// Bank rows and capture counts, one per row of the batch: every row of the step, directly followed by its branches.
    /// Without fixed state no bank rows, and nothing to capture.
    pub(crate) fn fixed_binding(&self) -> FixedBinding {
        match &self.state {
            Some(state) => state.binding(),
            None => FixedBinding {
                capture_counts: vec![0; self.rows.iter().map(Row::candidates).sum()],
                ..FixedBinding::default()
            },
        }
    }

    /// Past lengths and block table, one per row of the batch, in the order of [`Self::fixed_binding`]; without a paged cache only the lengths.
    pub(crate) fn paged_binding(&self) -> PagedBinding {
        let past = || {
            self.rows.iter().flat_map(|row| {
                let past = i32::try_from(row.before).unwrap_or(i32::MAX);
                std::iter::repeat_n(past, row.candidates())
            })
        };
        match &self.kv {
            Some(kv) => kv.binding(),
            None => PagedBinding {
                past: past().collect(),
                ..PagedBinding::default()
            },
        }
    }

    /// Past lengths and block table of a run of the draft head over some rows of the step. A run that follows another
    /// in the same step adds what that one wrote to `past`.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn head_binding(&self, rows: &[usize]) -> Option<PagedBinding> {
        let own = rows.iter().map(|row| (*row, 0));
        self.head.as_ref().map(|head| head.binding_of(own))
    }

    /// Whether the checkpoint outputs must be bound.
    pub(crate) fn capture(&self) -> Capture {
        match &self.state {
            Some(state) if state.captures() => Capture::On,
            _ => Capture::Off,
        }
    }

    /// The tensors a run of the decoder reads and writes.
    pub(crate) fn buffers(&mut self) -> StepBuffers<'_> {
        StepBuffers {
            paged: self.kv.as_mut().map_or(&mut [], |kv| kv.buffers()),
            fixed: self.state.as_mut().map_or(&mut [], |state| state.buffers()),
        }
    }

    /// The tensors a run of the draft head reads and writes; empty without a head.
    pub(crate) fn head_buffers(&mut self) -> &mut [PagedBuffers] {
        self.head.as_mut().map_or(&mut [], |head| head.buffers())
    }

    /// Seats a participant of the caller, last in the order of phases. From here on it leaves by publish or discard.
    pub(crate) fn join(&mut self, guest: Box<dyn Participant + 'a>) {
        self.guests.push(Seat::new(guest));
    }

    /// Ends the run: decides for every request, in batch order, which of its rows is kept and how much of it.
    ///
    /// # Errors
    /// Other numbers of decisions than requests; rows that are not there; more kept than run; known tokens dropped; a prefix whose state was not
    /// captured. The step is discarded.
    pub(crate) fn accept(mut self, kept: &[Keep]) -> Result<Step<'a, Accepted>, StepError> {
        if kept.len() != self.rows.len() {
            return Err(StepError::Decisions {
                decisions: kept.len(),
                rows: self.rows.len(),
            });
        }
        let faults = self.standing.faults.clone();
        for (index, (row, keep)) in self.rows.iter_mut().zip(kept).enumerate() {
            faults.call("accept row")?;
            row.decide(keep)?;
            if let Some(state) = &mut self.state {
                state.elect(index, keep.row)?;
                state.commit_prefix(index, keep.tokens)?;
            }
            if let Some(kv) = &mut self.kv {
                kv.elect(index, keep.row)?;
                kv.commit_prefix(index, row.kept)?;
            }
            match &mut self.head {
                Some(head) => {
                    head.commit_prefix(index, keep.head_tokens)
                        .map_err(StepError::Head)?;
                }
                None if keep.head_tokens > 0 => return Err(StepError::NoHead(row.request)),
                None => {}
            }
        }
        faults.call("accept")?;
        Ok(self.enter(In::accept))
    }

    /// Ends the run of a step that keeps every token and every reserved position of a draft head.
    pub(crate) fn accept_all(self) -> Step<'a, Accepted> {
        self.enter(In::accept)
    }
}

impl<'a> Step<'a, Accepted> {
    /// Asks every participant whether its change still fits. Changes nothing.
    ///
    /// # Errors
    /// The first refusal. The step is discarded.
    pub(crate) fn validate(self) -> Result<Step<'a, Validated>, StepError> {
        let faults = &self.standing.faults;
        for participant in self.participants() {
            faults.call("validate participant")?;
            participant
                .validate()
                .map_err(|source| StepError::Validate {
                    participant: participant.name(),
                    source,
                })?;
        }
        faults.call("validate")?;
        Ok(self.enter(In::validate))
    }
}

impl<'a> Step<'a, Validated> {
    /// Lets every participant do its fallible work, out of sight of the others.
    ///
    /// # Errors
    /// The first failure. The step is discarded.
    pub(crate) fn prepare(mut self) -> Result<Step<'a, Prepared>, StepError> {
        let faults = self.standing.faults.clone();
        for participant in self.participants_mut() {
            faults.call("prepare participant")?;
            let name = participant.name();
            participant.prepare().map_err(|source| StepError::Prepare {
                participant: name,
                source,
            })?;
        }
        faults.call("prepare")?;
        Ok(self.enter(In::prepare))
    }
}

impl Step<'_, Prepared> {
    /// Makes the step visible. There is nothing left that could fail; should a participant panic all the same,
    /// the composite refuses further steps instead of running on half a commit.
    pub(crate) fn publish(self) -> StepOutcome {
        let Self {
            rows,
            state,
            kv,
            head,
            guests,
            standing,
            phase,
        } = self;
        let permit = Permit::to_publish(phase.publish());
        standing.health = Health::Torn;
        let outcome = rows.iter().enumerate().map(|(index, row)| {
            let committed = row.before + row.kept;
            let slot = state.as_ref().and_then(|state| state.handle(index));
            standing.residents.insert(
                row.request,
                Resident {
                    slot,
                    tokens: committed,
                },
            );
            row.outcome()
        });
        let outcome = StepOutcome {
            rows: outcome.collect(),
        };
        if let Some(state) = state {
            state.publish(&permit);
        }
        for kv in [kv, head].into_iter().flatten() {
            kv.publish(&permit);
        }
        for guest in guests {
            guest.publish(&permit);
        }
        standing.health = Health::Sound;
        outcome
    }
}

impl<'a, Phase> Step<'a, Phase> {
    /// Undoes the step, as dropping it does.
    #[cfg(test)]
    pub(crate) fn discard(self) {}

    /// Everything seated, in the order of phases.
    fn participants(&self) -> impl Iterator<Item = &(dyn Participant + 'a)> {
        let state = self
            .state
            .iter()
            .map(|seat| &**seat as &(dyn Participant + 'a));
        let paged = self.kv.iter().chain(&self.head);
        let paged = paged.map(|seat| &**seat as &(dyn Participant + 'a));
        let guests = self.guests.iter().map(|seat| &***seat);
        state.chain(paged).chain(guests)
    }

    fn participants_mut(&mut self) -> impl Iterator<Item = &mut (dyn Participant + 'a)> {
        let state = self
            .state
            .iter_mut()
            .map(|seat| &mut **seat as &mut (dyn Participant + 'a));
        let paged = self.kv.iter_mut().chain(&mut self.head);
        let paged = paged.map(|seat| &mut **seat as &mut (dyn Participant + 'a));
        let guests = self.guests.iter_mut().map(|seat| &mut ***seat);
        state.chain(paged).chain(guests)
    }

    fn enter<Next>(self, next: impl FnOnce(In<Phase>) -> In<Next>) -> Step<'a, Next> {
        let Self {
            rows,
            state,
            kv,
            head,
            guests,
            standing,
            phase,
        } = self;
        Step {
            rows,
            state,
            kv,
            head,
            guests,
            standing,
            phase: next(phase),
        }
    }

    /// Lets the calls of the step fail on purpose.
    pub(super) fn faults(&self) -> &Faults {
        &self.standing.faults
    }

    /// Requests of the rows, in batch order.
    pub(crate) fn requests(&self) -> impl Iterator<Item = RequestId> {
        self.rows.iter().map(|row| row.request)
    }

    pub(super) fn seats(&self) -> SeatRefs<'_, 'a> {
        (
            self.state.as_deref(),
            self.kv.as_deref(),
            self.head.as_deref(),
        )
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn standing(&self) -> &Standing {
        self.standing
    }

    pub(super) fn seats_mut(&mut self) -> SeatMuts<'_, 'a> {
        (
            self.state.as_deref_mut(),
            self.kv.as_deref_mut(),
            self.head.as_deref_mut(),
        )
    }
}

/// What tests look at and break.
#[cfg(test)]
impl<'a, Phase> Step<'a, Phase> {
    pub(super) fn state_mut(&mut self) -> Option<&mut StateReservation<'a>> {
        self.state.as_deref_mut()
    }
}

/// The reservations, borrowed.
pub(super) type SeatRefs<'s, 'a> = (
    Option<&'s StateReservation<'a>>,
    Option<&'s KvReservation<'a>>,
    Option<&'s KvReservation<'a>>,
);

/// The reservations, borrowed to write.
pub(super) type SeatMuts<'s, 'a> = (
    Option<&'s mut StateReservation<'a>>,
    Option<&'s mut KvReservation<'a>>,
    Option<&'s mut KvReservation<'a>>,
);
