//! The planner.

use super::branches::add_branches;
use super::limits::{Limits, RequestView};
use crate::ids::RequestId;
use crate::txn::StepRow;
use std::cmp::Reverse;
use std::ops::Range;

/// One row of a planned step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowPlan {
    /// Whose row.
    pub(crate) request: RequestId,
    /// Absolute positions of the known tokens to run; starts at the committed length.
    pub(crate) tokens: Range<usize>,
    /// Drafts to run after them.
    pub(crate) drafts: usize,
    /// Drafts of the rows that branch off it: of those wanted the first ones, some of them shortened at the ceiling.
    pub(crate) branches: Vec<usize>,
    /// Whether the tokens are a prompt or part of one.
    pub(crate) is_prefill: bool,
    /// Whether the row runs the last known token, so that the next one can be drawn.
    pub(crate) wants_logits: bool,
    /// Whether the row admits the request.
    pub(crate) new: bool,
}

impl RowPlan {
    /// Committed tokens before the step.
    pub(crate) fn past(&self) -> usize {
        self.tokens.start
    }

    /// All tokens of the row itself, drafts included.
    pub(crate) fn num_tokens(&self) -> usize {
        self.tokens.len() + self.drafts
    }

    /// Tokens that each branch runs, the known ones included.
    pub(crate) fn branch_tokens(&self) -> impl Iterator<Item = usize> {
        let known = self.tokens.len();
        self.branches.iter().map(move |drafts| known + drafts)
    }

    /// The row as the transaction takes it, with the positions a draft head may write.
    pub(crate) fn step_row(&self, head_tokens: usize) -> StepRow {
        let (request, drafts, new) = (self.request, self.drafts, self.new);
        StepRow {
            request,
            tokens: self.num_tokens(),
            drafts,
            head_tokens,
            new,
            branches: self.branch_tokens().collect(),
            head_branches: Vec::new(),
        }
    }
}

/// Why a request that waits for admission does not get it in this step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deferral {
    /// Every slot is taken.
    Slots,
    /// The cache cannot hold every resident and this request at their ceilings.
    Blocks,
    /// Rows or tokens of this step are used up.
    Step,
    /// An earlier request was overtaken often enough and goes first.
    Turn,
}

/// A request that waits for admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deferred {
    /// Which one.
    pub(crate) request: RequestId,
    /// Why.
    pub(crate) reason: Deferral,
    /// Later requests that this step admits before it. The caller adds them up in [`RequestView::overtaken`].
    pub(crate) overtaken: usize,
}

/// What the next step runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepPlan {
    /// Rows in batch order: decoding ones, then prefills, then admissions.
    pub(crate) rows: Vec<RowPlan>,
    /// Requests that wait for admission.
    pub(crate) deferred: Vec<Deferred>,
    /// Requests that can never be admitted: their ceiling exceeds the whole cache.
    pub(crate) unserviceable: Vec<RequestId>,
}

impl StepPlan {
    /// Tokens of all rows, branches included.
    pub(crate) fn num_tokens(&self) -> usize {
        let tokens = |row: &RowPlan| row.num_tokens() + row.branch_tokens().sum::<usize>();
        self.rows.iter().map(tokens).sum()
    }

    /// Rows of the batch, branches included.
    #[cfg(test)]
    pub(crate) fn batch_rows(&self) -> usize {
        self.rows.iter().map(|row| 1 + row.branches.len()).sum()
    }
}

/// Plans one step over all unfinished requests, given in order of arrival.
///
/// The plan is empty only when `requests` holds nothing that can run. See the module's text for the policy.
pub(crate) fn plan(requests: &[RequestView], limits: &Limits) -> StepPlan {
    let mut plan = StepPlan::default();
    let decodes = by_wait(
        requests
            .iter()
            .filter(|view| view.resident && !view.is_prefill()),
    );
    let prefills: Vec<&RequestView> = requests
        .iter()
        .filter(|view| view.resident && view.is_prefill())
        .collect();
    let admission = Admission::choose(requests, limits, &mut plan);

    let next = prefills.iter().chain(&admission.fitting).next();
    let waiting = next.map(|view| view.waited);
    let mut room = Room {
        rows: limits.max_batch_size,
        tokens: limits.max_scheduled_tokens,
    };
    let kept = keep_for_prefill(
        &room,
        limits,
        waiting,
        decodes.first().map(|view| view.waited),
    );
    room.rows -= kept.rows;
    room.tokens -= kept.tokens;
    for view in decodes {
        room.row(view, 1, &mut plan.rows);
    }
    let decoding = plan.rows.len();
    room.rows += kept.rows;

    let pending = |view: &&RequestView| view.pending.min(limits.max_chunk);
    let beside = prefills.iter().chain(&admission.fitting);
    let wanted: usize = beside.clone().take(room.rows).map(pending).sum();
    let spare = (room.tokens + kept.tokens).saturating_sub(wanted.min(limits.prefill_share()));
    let drafting = wanted == 0 || limits.drafts_beside_prefill;
    if drafting {
        let used = add_drafts(plan.rows.iter_mut().take(decoding), requests, limits, spare);
        room.tokens = (room.tokens + kept.tokens).saturating_sub(used);
    } else {
        room.tokens += kept.tokens;
    }
    for view in prefills {
        room.row(view, pending(&view), &mut plan.rows);
    }
    for view in &admission.fitting {
        if !room.row(view, pending(view), &mut plan.rows) {
            plan.deferred.push(Deferred {
                request: view.request,
                reason: Deferral::Step,
                overtaken: 0,
            });
        }
    }
    if drafting {
        add_branches(&mut plan, requests, limits);
    }
    count_overtaken(requests, &mut plan);
    plan
}

/// Rows and tokens of the step that are still free.
struct Room {
    rows: usize,
    tokens: usize,
}

impl Room {
    /// Adds a row of up to `tokens` tokens, if there is room for one.
    fn row(&mut self, view: &RequestView, tokens: usize, rows: &mut Vec<RowPlan>) -> bool {
        let count = tokens.min(self.tokens);
        if self.rows == 0 || count == 0 {
            return false;
        }
        self.rows -= 1;
        self.tokens -= count;
        rows.push(RowPlan {
            request: view.request,
            tokens: view.past..view.past + count,
            drafts: 0,
            branches: Vec::new(),
            is_prefill: view.is_prefill(),
            wants_logits: count == view.pending,
            new: !view.resident,
        });
        true
    }
}

/// Longest wait first, then arrival.
fn by_wait<'a>(views: impl Iterator<Item = &'a RequestView>) -> Vec<&'a RequestView> {
    let mut views: Vec<&RequestView> = views.collect();
    views.sort_by_key(|view| Reverse(view.waited));
    views
}

/// What decoding rows leave for prefills. `waiting` is the wait of the next prefill, `decoding` the longest wait of a
/// decoding request.
fn keep_for_prefill(
    room: &Room,
    limits: &Limits,
    waiting: Option<usize>,
    decoding: Option<usize>,
) -> Room {
    let (Some(waiting), Some(decoding)) = (waiting, decoding) else {
        return Room { rows: 0, tokens: 0 };
    };
    let share = limits.prefill_share();
    if room.rows > 1 && room.tokens > share {
        return Room {
            rows: 1,
            tokens: share,
        };
    }
    if waiting > decoding {
        return Room {
            rows: room.rows,
            tokens: room.tokens,
        };
    }
    Room { rows: 0, tokens: 0 }
}

/// Gives drafts to decoding rows, in order, out of `spare` tokens. Tells how many it gave.
fn add_drafts<'a>(
    rows: impl Iterator<Item = &'a mut RowPlan>,
    requests: &[RequestView],
    limits: &Limits,
    spare: usize,
) -> usize {
    let mut left = spare;
    for row in rows {
        let Some(view) = requests.iter().find(|view| view.request == row.request) else {
            continue;
        };
        row.drafts = view.drafts.min(limits.most_drafts(view)).min(left);
        left -= row.drafts;
    }
    spare - left
}

/// Which waiting requests fit the pools.
struct Admission<'a> {
    fitting: Vec<&'a RequestView>,
}

impl<'a> Admission<'a> {
    fn choose(requests: &'a [RequestView], limits: &Limits, plan: &mut StepPlan) -> Self {
        let running = requests.iter().filter(|view| view.resident).count();
        let mut slots = limits.slots.saturating_sub(running + limits.held.slots);
        let mut blocks = limits.unclaimed(requests);
        let mut fitting = Vec::new();
        let mut closed = None;
        for view in requests.iter().filter(|view| !view.resident) {
            let worst = limits.worst_blocks(view);
            if !worst.fit(limits.blocks) {
                plan.unserviceable.push(view.request);
                continue;
            }
            let new_slots = usize::from(view.brings.is_none());
            let new_blocks = worst.without(view.brings.unwrap_or_default());
            let refused = closed
                .or((new_slots > slots).then_some(Deferral::Slots))
                .or((!new_blocks.fit(blocks)).then_some(Deferral::Blocks));
            match refused {
                None => {
                    slots -= new_slots;
                    blocks = blocks.without(new_blocks);
                    fitting.push(view);
                }
                Some(reason) => {
                    plan.deferred.push(Deferred {
                        request: view.request,
                        reason,
                        overtaken: 0,
                    });
                    if reason == Deferral::Blocks && view.overtaken >= limits.max_overtakes {
                        closed = Some(Deferral::Turn);
                    }
                }
            }
        }
        Self { fitting }
    }
}

/// Counts, for every deferred request, the later ones that were admitted.
fn count_overtaken(requests: &[RequestView], plan: &mut StepPlan) {
    let position = |request: RequestId| requests.iter().position(|view| view.request == request);
    let admitted: Vec<Option<usize>> = plan
        .rows
        .iter()
        .filter(|row| row.new)
        .map(|row| position(row.request))
        .collect();
    for deferred in &mut plan.deferred {
        let own = position(deferred.request);
        deferred.overtaken = admitted.iter().filter(|other| **other > own).count();
    }
}
