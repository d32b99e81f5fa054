//! What sampling decides about the rows of a step, and what that does to their requests.

use super::active::{Active, Change, Delivered, Delivery, Progress};
use super::observe::Draw;
use crate::exec::StepOutputs;
use crate::grammar::GrammarCursor;
use crate::ids::RequestId;
use crate::request::{Advance, RequestError};
use crate::sample::{Drawn, Sampler, Scratch};
use crate::schedule::{RowPlan, StepPlan};
use crate::speculate::control::Why;
use crate::speculate::{
    Choice, Departure, DraftTree, Policy, Proposal, Round, Rows, Source, verify_tree,
};
use crate::txn::{Keep, StepRow};
use std::num::NonZeroUsize;

/// The decision about one row; nothing has changed yet.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) request: RequestId,
    /// Committed tokens before the step.
    pub(super) past: usize,
    /// Tokens kept of the row: the known ones and the accepted drafts.
    pub(super) kept: NonZeroUsize,
    /// Which of the request's rows is kept: 0 is its own.
    pub(super) candidate: usize,
    /// First packed token of that row.
    pub(super) start: usize,
    /// How the request samples; drafts are drawn alike.
    pub(super) sampler: Sampler,
    /// Whether the row ran a prompt or a part of one.
    pub(super) is_prefill: bool,
    /// Drafts that could be used in the next step; 0 for a row that draws nothing or ends its request.
    pub(super) room: usize,
    /// Where they are to come from, and how many.
    pub(super) choice: Choice,
    /// Drafts made for the next step.
    pub(super) proposal: Proposal,
    /// Why the request's own drafts are not run as they were made.
    pub(super) departures: Vec<Departure>,
    /// Positions that a head may write for the row, from its committed length on.
    pub(super) head_room: usize,
    /// How many of them it keeps.
    pub(super) head_kept: usize,
    drawn: Outcome,
    round: Round,
    draws: Vec<Draw>,
    /// The drafts that the row and its branches ran.
    ran: DraftTree,
}

/// What a row drew.
#[derive(Debug)]
enum Outcome {
    /// Nothing: its prompt goes on.
    Nothing,
    /// Tokens.
    Advance(Advance),
    /// Nothing, by an error: the row's request cannot go on, its neighbours can.
    Failed(RequestError),
}

impl Decided {
    /// What the transaction keeps of the row.
    pub(super) fn keep(&self) -> Keep {
        Keep {
            row: self.candidate,
            tokens: self.kept,
            head_tokens: self.head_kept,
        }
    }

    /// The tokens drawn: the accepted drafts, and the one after them, which has not been run.
    pub(super) fn fresh(&self) -> &[u32] {
        match &self.drawn {
            Outcome::Advance(advance) => &advance.tokens,
            Outcome::Nothing | Outcome::Failed(_) => &[],
        }
    }

    /// Whether the request's text is held to a grammar.
    pub(super) fn is_constrained(&self) -> bool {
        matches!(&self.drawn, Outcome::Advance(advance) if advance.grammar.is_some())
    }

    /// How many of some guesses the grammar allows behind the tokens drawn.
    pub(super) fn legal(&mut self, guesses: &[u32]) -> usize {
        match &mut self.drawn {
            Outcome::Advance(advance) => advance.legal(guesses),
            Outcome::Nothing | Outcome::Failed(_) => guesses.len(),
        }
    }

    /// Drafts that a source is to make.
    pub(super) fn wanted(&self, source: Source) -> usize {
        let Choice { drafts, own, .. } = self.choice;
        let first = (self.choice.source == Some(source)).then_some(own);
        let tail = (self.choice.tail == Some(source)).then_some(drafts);
        self.room.min(first.or(tail).unwrap_or(0))
    }
}

/// Draws the tokens of every row. Changes nothing.
pub(super) fn decide(
    plan: &StepPlan,
    rows: &[StepRow],
    requests: &[Active],
    (outputs, vocab): (&StepOutputs, usize),
    scratch: &mut Scratch,
) -> Vec<Decided> {
    let mut logits = outputs.logits.chunks_exact(vocab.max(1));
    let mut start = 0;
    let mut decided = Vec::with_capacity(plan.rows.len());
    for (row, reserved) in plan.rows.iter().zip(rows) {
        let active = requests.iter().find(|active| active.id == row.request);
        let run = Candidates::of(active, row);
        let logits: Vec<&[f32]> = logits.by_ref().take(run.logits(row)).collect();
        let found =
            active.and_then(|active| decide_row(active, (row, &run), start, &logits, scratch));
        decided.extend(found.map(|found| Decided {
            head_room: reserved.head_tokens,
            ..found
        }));
        start += run.tokens(row, usize::MAX);
    }
    decided
}

/// The rows that one planned row stands for in the batch: its own, and those that branch off it.
#[derive(Debug)]
pub(super) struct Candidates {
    tree: DraftTree,
    rows: Rows,
}

impl Candidates {
    /// The drafts that a row of the plan runs.
    pub(super) fn of(active: Option<&Active>, row: &RowPlan) -> Self {
        let granted = active.map(|a| a.proposal.granted(row.drafts, row.branches.len()));
        let (tree, rows) = granted.unwrap_or_else(|| {
            let tree = DraftTree::default();
            let rows = Rows::of(&tree);
            (tree, rows)
        });
        Self { tree, rows }
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The drafts of one of the rows.
    pub(super) fn drafts(&self, row: usize) -> impl Iterator<Item = u32> {
        let nodes = self.rows.row(row).iter();
        nodes.filter_map(|node| self.tree.token(*node))
    }

    /// The drafts of one of the rows that no row before it runs; they are its last ones.
    pub(super) fn own(&self, row: usize) -> usize {
        let nodes = self.rows.row(row).iter();
        let own = nodes.filter(|node| {
            let place = self.rows.canonical(**node);
            place.is_some_and(|(canonical, _)| canonical == row)
        });
        own.count()
    }

    /// Packed tokens of the first `count` rows.
    fn tokens(&self, plan: &RowPlan, count: usize) -> usize {
        let rows = (0..self.rows.len()).take(count);
        rows.map(|row| plan.tokens.len() + self.rows.row(row).len())
            .sum()
    }

    /// Different drafts of all rows.
    fn nodes(&self) -> usize {
        (0..self.rows.len()).map(|row| self.own(row)).sum()
    }

    /// Logits that the decoder gives for the rows: after the last known token, then after every draft once.
    fn logits(&self, plan: &RowPlan) -> usize {
        if plan.wants_logits {
            self.nodes() + 1
        } else {
            0
        }
    }

    /// Which of these logits stand after a node; `None` is the last known token.
    fn place(&self, node: Option<usize>) -> Option<usize> {
        let Some(node) = node else { return Some(0) };
        let (row, index) = self.rows.canonical(node)?;
        let before: usize = (0..row).map(|row| self.own(row)).sum();
        let shared = self.rows.row(row).len() - self.own(row);
        Some(1 + before + index - shared)
    }
}

fn decide_row(
    active: &Active,
    (row, run): (&RowPlan, &Candidates),
    start: usize,
    logits: &[&[f32]],
    scratch: &mut Scratch,
) -> Option<Decided> {
    let mut draws = Vec::with_capacity(logits.len());
    let (drawn, round) = match logits {
        [] => (Outcome::Nothing, Round::default()),
        _ if active.reads_only => (Outcome::Nothing, Round::default()),
        logits => draw(active, run, logits, scratch, &mut draws),
    };
    let new: &[u32] = match &drawn {
        Outcome::Advance(advance) => &advance.tokens,
        Outcome::Nothing | Outcome::Failed(_) => &[],
    };
    draws.truncate(new.len());
    // The last token drawn has not been run; the ones before it are accepted drafts, which have.
    let kept = NonZeroUsize::new(row.tokens.len() + new.len().saturating_sub(1))?;
    let ends = matches!(&drawn, Outcome::Advance(advance) if advance.finish.is_some());
    let known = active.tokens.len() + new.len();
    let room = match (&drawn, ends) {
        (Outcome::Advance(_), false) => active.ceiling().saturating_sub(known + 1),
        _ => 0,
    };
    Some(Decided {
        request: active.id,
        past: row.past(),
        kept,
        candidate: round.winner,
        start: start + run.tokens(row, round.winner),
        sampler: active.sampler.clone(),
        is_prefill: row.is_prefill,
        room,
        choice: Choice::default(),
        proposal: Proposal::default(),
        departures: Vec::new(),
        head_room: 0,
        head_kept: 0,
        drawn,
        round,
        draws,
        ran: run.tree.clone(),
    })
}

/// Draws at every position up to the first draft that differs, or to the end of the request, and notes how close each
/// draw was.
fn draw(
    active: &Active,
    run: &Candidates,
    logits: &[&[f32]],
    scratch: &mut Scratch,
    draws: &mut Vec<Draw>,
) -> (Outcome, Round) {
    let first = active.tokens.len();
    let mut advance = active.cursor.plan();
    let draw = |node: Option<usize>| {
        if advance.finish.is_some() {
            return Err(None);
        }
        let row = run.place(node).and_then(|place| logits.get(place));
        let row = row.copied().unwrap_or_default();
        let position = u64::try_from(first + draws.len()).unwrap_or(u64::MAX);
        let grammar = advance.grammar.as_deref_mut();
        let drawn = draw_allowed(&active.sampler, row, grammar, position, scratch)?;
        let (token, margin) = (drawn.token, drawn.margin);
        let told = active.cursor.extend(&mut advance, token);
        told.map_err(RequestError::from)?;
        draws.push(Draw { token, margin });
        Ok(token)
    };
    let verified = match verify_tree(&run.tree, &run.rows, draw) {
        Ok(verified) => verified,
        Err(None) => return (Outcome::Nothing, Round::default()),
        Err(Some(error)) => return (Outcome::Failed(error), Round::default()),
    };
    let round = Round {
        source: active.proposal.source,
        tail: active.proposal.tail,
        proposed: run.nodes(),
        evaluated: verified.evaluated,
        accepted: verified.accepted,
        rows: run.len(),
        winner: verified.row,
        forbidden: active.proposal.forbidden,
    };
    (Outcome::Advance(advance), round)
}

/// Draws among the tokens that the grammar allows, where there is one.
fn draw_allowed(
    sampler: &Sampler,
    logits: &[f32],
    grammar: Option<&mut GrammarCursor>,
    position: u64,
    scratch: &mut Scratch,
) -> Result<Drawn, RequestError> {
    let sampled = |error| RequestError::sampling(&error);
    let Some(grammar) = grammar else {
        return sampler.draw(logits, position, scratch).map_err(sampled);
    };
    let mut masked = scratch.copy(logits);
    let allowed = grammar.mask(&mut masked);
    let drawn = allowed
        .map_err(|error| RequestError::grammar(&error))
        .and_then(|()| sampler.draw(&masked, position, scratch).map_err(sampled));
    scratch.give_back(masked);
    drawn
}

/// The decisions as a participant of the step, and what callers are told once it is published.
pub(super) fn progress(
    decided: Vec<Decided>,
    requests: &mut [Active],
) -> (Progress<'_>, Vec<Delivered>) {
    let mut others: Vec<&mut Active> = requests.iter_mut().collect();
    let mut changes = Vec::with_capacity(decided.len());
    let mut delivered = Vec::with_capacity(decided.len());
    for row in decided {
        let Some(at) = others.iter().position(|active| active.id == row.request) else {
            continue;
        };
        let active = others.swap_remove(at);
        let committed = row.past + row.kept.get();
        let (advance, told) = match row.drawn {
            Outcome::Nothing => (None, None),
            Outcome::Failed(error) => (None, Some(Err(error))),
            Outcome::Advance(advance) => {
                let (tokens, text) = (advance.tokens.clone(), advance.text.clone());
                (Some(advance), Some(Ok(Delivery { tokens, text })))
            }
        };
        // What is decided for a request that is about to end says nothing of how it drafted.
        let decided = row.choice.why != Why::NoRoom;
        let policy = decided.then(|| Policy {
            source: row.choice.source,
            drafts: row.choice.drafts,
            width: row.choice.width,
            why: row.choice.why.to_string(),
        });
        let (request, round, draws, ran) = (row.request, row.round, row.draws, row.ran);
        delivered.extend(told.map(|told| Delivered {
            request,
            round,
            draws,
            ran,
            arm: active.proposal.arm,
            made: active.proposal.tree.len(),
            // The step may yet be discarded.
            confidences: active.proposal.confidences.clone(),
            why: active.proposal.why,
            next: policy,
            told,
        }));
        changes.push(Change {
            active,
            committed,
            advance,
            proposal: row.proposal,
            departures: row.departures,
        });
    }
    (Progress { changes }, delivered)
}
