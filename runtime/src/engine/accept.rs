//! What sampling decides about the rows of a step, and what that does to their requests.

use super::active::{Active, Change, Delivered, Delivery, Progress};
use super::observe::Draw;
use crate::exec::StepOutputs;
use crate::ids::RequestId;
use crate::request::{Advance, RequestError};
use crate::sample::{Sampler, Scratch};
use crate::schedule::{RowPlan, StepPlan};
use crate::speculate::verify;
use crate::txn::Keep;
use std::num::NonZeroUsize;

/// The decision about one row; nothing has changed yet.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) request: RequestId,
    /// Committed tokens before the step.
    pub(super) past: usize,
    /// Tokens kept of the row: the known ones and the accepted drafts.
    pub(super) kept: NonZeroUsize,
    /// The tokens after the kept ones' first: token `i + 1` of the request for kept row `i`, as a head reads them.
    pub(super) shifted: Vec<u32>,
    /// First packed token of the row.
    pub(super) start: usize,
    /// How the request samples; drafts are drawn alike.
    pub(super) sampler: Sampler,
    /// Drafts that could be used in the next step; 0 for a row that draws nothing or ends its request.
    pub(super) room: usize,
    /// Drafts made for the next step.
    pub(super) proposal: Vec<u32>,
    drawn: Drawn,
    counts: (usize, usize, usize),
    draws: Vec<Draw>,
}

/// What a row drew.
#[derive(Debug)]
enum Drawn {
    /// Nothing: its prompt goes on.
    Nothing,
    /// Tokens.
    Advance(Advance),
    /// Nothing, by an error: the row's request cannot go on, its neighbours can.
    Failed(RequestError),
}

impl Decided {
    /// What the transaction keeps of the row; a head keeps one position per kept token.
    pub(super) fn keep(&self, heading: bool) -> Keep {
        let head_tokens = if heading { self.kept.get() } else { 0 };
        Keep {
            row: 0,
            tokens: self.kept,
            head_tokens,
        }
    }
}

/// Draws the tokens of every row. Changes nothing.
pub(super) fn decide(
    plan: &StepPlan,
    requests: &[Active],
    outputs: &StepOutputs,
    vocab: usize,
    scratch: &mut Scratch,
) -> Vec<Decided> {
    let mut logits = outputs.logits.chunks_exact(vocab.max(1));
    let mut start = 0;
    let mut decided = Vec::with_capacity(plan.rows.len());
    for row in &plan.rows {
        let count = if row.wants_logits { row.drafts + 1 } else { 0 };
        let logits: Vec<&[f32]> = logits.by_ref().take(count).collect();
        let active = requests.iter().find(|active| active.id == row.request);
        decided.extend(active.and_then(|active| decide_row(active, row, start, &logits, scratch)));
        start += row.num_tokens();
    }
    decided
}

fn decide_row(
    active: &Active,
    row: &RowPlan,
    start: usize,
    logits: &[&[f32]],
    scratch: &mut Scratch,
) -> Option<Decided> {
    let drafts = active.proposal.get(..row.drafts).unwrap_or_default();
    let mut draws = Vec::with_capacity(logits.len());
    let (drawn, counts) = match logits {
        [] => (Drawn::Nothing, (0, 0, 0)),
        _ if active.reads_only => (Drawn::Nothing, (0, 0, 0)),
        logits => draw(active, drafts, logits, scratch, &mut draws),
    };
    let new: &[u32] = match &drawn {
        Drawn::Advance(advance) => &advance.tokens,
        Drawn::Nothing | Drawn::Failed(_) => &[],
    };
    draws.truncate(new.len());
    // The last token drawn has not been run; the ones before it are accepted drafts, which have.
    let kept = NonZeroUsize::new(row.tokens.len() + new.len().saturating_sub(1))?;
    let after = active.tokens.get(row.past() + 1..).unwrap_or_default();
    // A row that failed draws nothing to read; its request ends, so any token serves.
    let filler = active.tokens.last().into_iter().cycle();
    let shifted = after.iter().chain(new).chain(filler);
    let shifted = shifted.take(kept.get()).copied().collect();
    let ends = matches!(&drawn, Drawn::Advance(advance) if advance.finish.is_some());
    let known = active.tokens.len() + new.len();
    let room = match (&drawn, ends) {
        (Drawn::Advance(_), false) => active.ceiling().saturating_sub(known + 1),
        _ => 0,
    };
    Some(Decided {
        request: active.id,
        past: row.past(),
        kept,
        shifted,
        start,
        sampler: active.sampler.clone(),
        room,
        proposal: Vec::new(),
        drawn,
        counts,
        draws,
    })
}

/// Draws at every position up to the first draft that differs, and notes how close each draw was.
fn draw(
    active: &Active,
    drafts: &[u32],
    logits: &[&[f32]],
    scratch: &mut Scratch,
    draws: &mut Vec<Draw>,
) -> (Drawn, (usize, usize, usize)) {
    let first = active.tokens.len();
    let draw = |index: usize| {
        let row = logits.get(index).copied().unwrap_or_default();
        let position = u64::try_from(first + index).unwrap_or(u64::MAX);
        let drawn = active.sampler.draw(row, position, scratch);
        drawn.map(|drawn| {
            let (token, margin) = (drawn.token, drawn.margin);
            draws.push(Draw { token, margin });
            token
        })
    };
    let verified = match verify(drafts, draw) {
        Ok(verified) => verified,
        Err(error) => return (Drawn::Failed(RequestError::sampling(&error)), (0, 0, 0)),
    };
    let counts = (drafts.len(), verified.evaluated, verified.accepted);
    match active.cursor.plan(&verified.tokens) {
        Ok(advance) => (Drawn::Advance(advance), counts),
        Err(error) => (Drawn::Failed(RequestError::text(&error)), counts),
    }
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
            Drawn::Nothing => (None, None),
            Drawn::Failed(error) => (None, Some(Err(error))),
            Drawn::Advance(advance) => {
                let (tokens, text) = (advance.tokens.clone(), advance.text.clone());
                (Some(advance), Some(Ok(Delivery { tokens, text })))
            }
        };
        let (request, counts, draws) = (row.request, row.counts, row.draws);
        delivered.extend(told.map(|told| Delivered {
            request,
            counts,
            draws,
            told,
        }));
        changes.push(Change {
            active,
            committed,
            advance,
            proposal: row.proposal,
        });
    }
    (Progress { changes }, delivered)
}
