//! Rows that branch off others, out of what a planned step leaves.

use super::limits::{Limits, RequestView};
use super::plan::StepPlan;

/// Gives branches to decoding rows, in order. A row gets the first ones that it wants, each whole; what it cannot use
/// before its ceiling is cut off, and a branch of which nothing is left ends the row's.
pub(super) fn add_branches(plan: &mut StepPlan, requests: &[RequestView], limits: &Limits) {
    let mut spare = Spare::of(plan, requests, limits);
    for row in plan.rows.iter_mut().filter(|row| !row.is_prefill) {
        let view = requests.iter().find(|view| view.request == row.request);
        for wanted in view.iter().flat_map(|view| &view.branches) {
            let Some(view) = view else { break };
            let drafts = (*wanted).min(limits.most_drafts(view));
            let tokens = row.tokens.len() + drafts;
            if drafts == 0 || !spare.take(tokens, limits.branch_blocks(view, tokens)) {
                break;
            }
            row.branches.push(drafts);
        }
    }
}

/// What the rows of a step leave.
struct Spare {
    rows: usize,
    tokens: usize,
    blocks: usize,
}

impl Spare {
    fn of(plan: &StepPlan, requests: &[RequestView], limits: &Limits) -> Self {
        let own = plan.rows.iter().filter_map(|row| {
            let view = requests.iter().find(|view| view.request == row.request)?;
            Some(limits.row_blocks(view, row.num_tokens()))
        });
        Self {
            rows: limits.step_rows.saturating_sub(plan.rows.len()),
            tokens: limits
                .max_scheduled_tokens
                .saturating_sub(plan.num_tokens()),
            blocks: limits.free_blocks.saturating_sub(own.sum()),
        }
    }

    /// Takes a row, if there is room for it.
    fn take(&mut self, tokens: usize, blocks: usize) -> bool {
        if self.rows == 0 || tokens > self.tokens || blocks > self.blocks {
            return false;
        }
        self.rows -= 1;
        self.tokens -= tokens;
        self.blocks -= blocks;
        true
    }
}
