//! A submitted request inside the engine.

use super::client::Client;
use super::kept::{Kept, KeptState};
use super::observe::Draw;
use super::stats::Clock;
use super::ticket::Ticket;
use super::worker::Submission;
use crate::ids::RequestId;
use crate::request::{Advance, Cursor, Event, FinishReason, Prepared, RequestError, Reuse, Usage};
use crate::sample::Sampler;
use crate::schedule::RequestView;
use crate::speculate::control::{Arm, Why};
use crate::speculate::{DraftTree, Drafts, Policy, Proposal, Round};
use crate::txn::{Participant, ParticipantError, Permit};
use std::sync::Arc;
use std::time::Instant;

/// Where a request's events go. A caller that is gone has lost interest, which is no error.
pub(super) type Events = async_channel::Sender<Event>;

/// One unfinished request.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) id: RequestId,
    /// Prompt, then generated tokens.
    pub(super) tokens: Vec<u32>,
    /// Tokens whose state is committed: its own or, before it is admitted, that of the kept state it continues.
    pub(super) committed: usize,
    /// Whether it owns a slot and a block table.
    pub(super) resident: bool,
    pub(super) sampler: Sampler,
    pub(super) cursor: Cursor,
    pub(super) clock: Clock,
    /// Guesses of the tokens that follow, for the next step.
    pub(super) proposal: Proposal,
    /// The caller's own source of drafts, until it fails.
    pub(super) drafts: Option<Drafts>,
    /// Why it failed, as long as the engine has not counted that.
    pub(super) gave_up: Option<String>,
    /// With whom it shares its text for drafting.
    pub(super) scope: Option<String>,
    pub(super) waited: usize,
    pub(super) overtaken: usize,
    /// The kept state to go on from, until it is taken over.
    pub(super) continues: Option<Kept>,
    /// What became of that.
    pub(super) reuse: Reuse,
    reused: usize,
    /// For the handle to its own state, if that is to be kept.
    keeper: Option<Arc<Client>>,
    /// Whether it ends with its prompt.
    pub(super) reads_only: bool,
    /// Its state, once it has ended and left one.
    pub(super) left: Option<KeptState>,
    /// The most tokens it can ever have.
    ceiling: usize,
    events: Events,
    /// Its place among the unfinished requests; free before the last event tells of the end.
    ticket: Option<Ticket>,
}

impl Active {
    /// `most_tokens` is what one request can have alone in the cache.
    pub(super) fn new(submission: Submission, most_tokens: usize) -> Self {
        let Submission {
            id,
            prepared,
            client,
            events,
            ticket,
        } = submission;
        let Prepared {
            prompt,
            sampler,
            cursor,
            drafts,
            scope,
            keep,
            continues,
            reuse,
        } = prepared;
        let budget = usize::try_from(cursor.remaining()).unwrap_or(usize::MAX);
        let ceiling = prompt
            .len()
            .saturating_add(budget)
            .min(most_tokens.max(prompt.len()));
        Self {
            id,
            tokens: prompt,
            committed: continues.as_ref().map_or(0, |kept| kept.tokens().len()),
            resident: false,
            sampler,
            cursor,
            clock: Clock::default(),
            proposal: Proposal::default(),
            drafts,
            gave_up: None,
            scope,
            waited: 0,
            overtaken: 0,
            continues,
            reuse,
            reused: 0,
            keeper: Some(client).filter(|_| keep),
            reads_only: budget == 0,
            left: None,
            ceiling,
            events,
            ticket: Some(ticket),
        }
    }

    /// What planning needs to know.
    pub(super) fn view(&self) -> RequestView {
        let pending = self.tokens.len().saturating_sub(self.committed);
        RequestView {
            request: self.id,
            resident: self.resident,
            past: self.committed,
            pending,
            ceiling: self.ceiling,
            drafts: if pending == 1 {
                self.proposal.spine().len()
            } else {
                0
            },
            branches: if pending == 1 {
                self.proposal.branches()
            } else {
                Vec::new()
            },
            waited: self.waited,
            overtaken: self.overtaken,
            brings: None,
        }
    }

    /// Whether it waits to take over this kept state.
    pub(super) fn continues_from(&self, state: RequestId) -> bool {
        self.continues
            .as_ref()
            .is_some_and(|kept| kept.id() == state)
    }

    /// It runs from its first token on; `reuse` says why.
    pub(super) fn start_afresh(&mut self, reuse: Reuse) {
        self.continues = None;
        self.committed = 0;
        self.reuse = reuse;
    }

    /// It has taken over the state it continues.
    pub(super) fn took_over(&mut self) {
        self.resident = true;
        self.reused = self.committed;
        self.reuse = Reuse::Continued;
    }

    /// The step that was to take the state over was discarded: it waits with it again.
    pub(super) fn gave_back(&mut self, kept: Kept, reuse: Reuse) {
        self.resident = false;
        self.reused = 0;
        self.reuse = reuse;
        self.continues = Some(kept);
    }

    /// The most tokens it can ever have.
    pub(super) fn ceiling(&self) -> usize {
        self.ceiling
    }

    /// Whether its last event has been sent.
    pub(super) fn is_finished(&self) -> bool {
        self.cursor.finish().is_some()
    }

    /// Ends it with its prompt, if that is all it was to read.
    pub(super) fn end_of_reading(&mut self) {
        if self.reads_only && self.resident && self.committed == self.tokens.len() {
            self.clock.read(Instant::now());
            self.end(FinishReason::MaxNewTokens);
        }
    }

    /// Sends what a published step brought, and the end if it ended.
    pub(super) fn deliver(&mut self, delivery: Delivery) {
        let Delivery { tokens, text } = delivery;
        let _ = self.events.try_send(Event::Tokens { tokens, text });
        if let Some(finish) = self.cursor.finish().cloned() {
            self.finish(finish.reason, finish.stop, None);
        } else if self.tokens.len() >= self.ceiling {
            self.end(FinishReason::ContextLength);
        }
    }

    /// Ends the request from outside; text that was held back goes out first.
    pub(super) fn end(&mut self, reason: FinishReason) {
        if self.is_finished() {
            return;
        }
        let text = self.cursor.end(reason);
        if !text.is_empty() {
            let _ = self.events.try_send(Event::Tokens {
                tokens: Vec::new(),
                text,
            });
        }
        self.finish(reason, None, None);
    }

    /// Ends the request by an error.
    pub(super) fn fail(&mut self, error: RequestError) {
        if self.is_finished() {
            return;
        }
        let _ = self.cursor.end(FinishReason::Failed);
        self.finish(FinishReason::Failed, None, Some(error));
    }

    fn finish(&mut self, reason: FinishReason, stop: Option<String>, error: Option<RequestError>) {
        let usage = Usage {
            reused_tokens: u64::try_from(self.reused).unwrap_or(u64::MAX),
            reuse: self.reuse,
            ..self.cursor.usage()
        };
        let stats = Box::new(self.clock.finish(usage.generated_tokens));
        let kept = self.leave(reason);
        self.ticket = None;
        let _ = self.events.try_send(Event::Finished {
            reason,
            stop,
            usage,
            stats,
            kept,
            error,
        });
        self.events.close();
    }

    /// The handle to the state it leaves. One that ends before it is admitted leaves the state it was to continue.
    fn leave(&mut self, reason: FinishReason) -> Option<Kept> {
        let keeper = self
            .keeper
            .take()
            .filter(|_| reason != FinishReason::Failed)?;
        if !self.resident {
            return self.continues.take();
        }
        let committed = self.tokens.get(..self.committed)?;
        let (state, kept) = KeptState::new(self.id, committed, keeper);
        self.left = Some(state);
        Some(kept)
    }
}

/// What the caller of one request is told after the step.
pub(super) struct Delivered {
    pub(super) request: RequestId,
    /// What became of its drafts.
    pub(super) round: Round,
    /// The tokens drawn, and how close each of them was.
    pub(super) draws: Vec<Draw>,
    /// The drafts that were run.
    pub(super) ran: DraftTree,
    /// Who was asked for drafts, as the controller knows it.
    pub(super) arm: Option<Arm>,
    /// How many it had, run or not.
    pub(super) made: usize,
    /// How sure that was of the first ones.
    pub(super) confidences: Vec<f32>,
    /// Why they were made as they were.
    pub(super) why: Option<Why>,
    /// What was decided for the next step, where drafts could be used.
    pub(super) next: Option<Policy>,
    pub(super) told: Result<Delivery, RequestError>,
}

/// What a caller learns from one published row.
#[derive(Clone, Debug, Default)]
pub(super) struct Delivery {
    pub(super) tokens: Vec<u32>,
    pub(super) text: String,
}

/// The change of one row to the engine's own record of its request.
pub(super) struct Change<'a> {
    pub(super) active: &'a mut Active,
    /// Committed length after the step.
    pub(super) committed: usize,
    /// What the drawn tokens do; `None` for a row that draws none.
    pub(super) advance: Option<Advance>,
    /// Drafts made for the next step.
    pub(super) proposal: Proposal,
    /// Why the caller's own source of drafts is not asked any more.
    pub(super) failure: Option<String>,
}

/// What one step does to requests: tokens, text, residency. Publishing moves planned advances in; nothing is computed.
pub(super) struct Progress<'a> {
    pub(super) changes: Vec<Change<'a>>,
}

impl Participant for Progress<'_> {
    fn name(&self) -> &'static str {
        "requests"
    }

    fn validate(&self) -> Result<(), ParticipantError> {
        for Change {
            active,
            committed,
            advance,
            ..
        } in &self.changes
        {
            if *committed <= active.committed {
                return Err(format!("{} would not move forward", active.id).into());
            }
            if advance
                .as_ref()
                .is_some_and(|advance| !active.cursor.is_current(advance))
            {
                return Err(format!("{} was planned for another state", active.id).into());
            }
        }
        Ok(())
    }

    fn prepare(&mut self) -> Result<(), ParticipantError> {
        for Change {
            active, advance, ..
        } in &mut self.changes
        {
            active
                .tokens
                .reserve(advance.as_ref().map_or(0, |advance| advance.tokens.len()));
        }
        Ok(())
    }

    fn publish(&mut self, _permit: &Permit) {
        for Change {
            active,
            committed,
            advance,
            proposal,
            failure,
        } in &mut self.changes
        {
            active.committed = *committed;
            active.resident = true;
            active.proposal = std::mem::take(proposal);
            if let Some(reason) = failure.take() {
                active.drafts = None;
                active.clock.fell_back(&reason);
                active.gave_up = Some(reason);
            }
            if let Some(advance) = advance.take() {
                active.tokens.extend_from_slice(&advance.tokens);
                active.cursor.apply(advance);
            }
        }
    }

    fn discard(&mut self) {
        self.changes.clear();
    }
}
