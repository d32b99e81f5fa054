//! What a plan is made from.

use crate::ids::RequestId;
use crate::kv::blocks_for;

/// One unfinished request, as planning sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestView {
    /// Which one.
    pub(crate) request: RequestId,
    /// Whether it owns a slot and a block table.
    pub(crate) resident: bool,
    /// Tokens committed.
    pub(crate) past: usize,
    /// Tokens known (prompt and generated) and not yet run; at least 1. More than 1, or nothing committed: a prefill.
    pub(crate) pending: usize,
    /// The most tokens the request can ever have, generated ones included: prompt plus `max_new_tokens`, cut at the
    /// context length.
    pub(crate) ceiling: usize,
    /// Drafts wanted after the pending token; 0 without speculation.
    pub(crate) drafts: usize,
    /// Drafts wanted after the pending token in rows that branch off it, the most wanted row first; empty without a tree.
    pub(crate) branches: Vec<usize>,
    /// Steps since it last ran, or since it was submitted.
    pub(crate) waited: usize,
    /// How often a later request was admitted before it: the sum of [`super::Deferred::overtaken`] so far.
    pub(crate) overtaken: usize,
    /// Blocks of the kept state that it takes over, with its slot, when it is admitted; `None` for a request that
    /// starts from nothing. What it takes over is part of [`Limits::held`].
    pub(crate) brings: Option<usize>,
}

/// What states that outlived their requests take of the pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Slots of fixed state.
    pub(crate) slots: usize,
    /// Blocks of the paged cache that no resident request uses.
    pub(crate) blocks: usize,
}

impl RequestView {
    /// Whether the request has a prompt, or the rest of one, to run.
    pub(crate) fn is_prefill(&self) -> bool {
        self.pending > 1 || self.past == 0
    }
}

/// Room of one step and of the pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Requests of one step.
    pub(crate) max_batch_size: usize,
    /// Rows of one step, branches included; at least `max_batch_size`.
    pub(crate) step_rows: usize,
    /// Tokens of one step.
    pub(crate) max_scheduled_tokens: usize,
    /// Tokens of one prefill row.
    pub(crate) max_chunk: usize,
    /// Drafts of one row: capture capacity less one, 0 without checkpoints.
    pub(crate) max_drafts: usize,
    /// Whether operators capture in a step that also holds prefill rows; otherwise such a step has no drafts.
    pub(crate) drafts_beside_prefill: bool,
    /// Requests that can be resident.
    pub(crate) slots: usize,
    /// Blocks of the paged cache; 0 for a model without one.
    pub(crate) blocks: usize,
    /// How many of them nobody uses now. Only branches ask: requests are admitted by what they can grow to.
    pub(crate) free_blocks: usize,
    /// Tokens per block.
    pub(crate) block_size: usize,
    /// How often a deferred request may be overtaken before it is admitted next, whatever comes after.
    pub(crate) max_overtakes: usize,
    /// What kept states take. They do not grow.
    pub(crate) held: Held,
}

impl Limits {
    /// Tokens of a step that prefills get while one can run, before drafts: a quarter, at least one.
    pub(crate) fn prefill_share(&self) -> usize {
        (self.max_scheduled_tokens / 4).max(1)
    }

    /// Blocks a request needs at its ceiling; 0 for a model without a paged cache.
    pub(crate) fn worst_blocks(&self, view: &RequestView) -> usize {
        self.cache_blocks(view.ceiling.max(view.past + view.pending))
    }

    /// Drafts that one row of a request can use.
    pub(super) fn most_drafts(&self, view: &RequestView) -> usize {
        // A row of d drafts draws up to d + 1 tokens, and the last one drawn is not run.
        let room = view.ceiling.saturating_sub(view.past + view.pending + 1);
        self.max_drafts.min(room)
    }

    /// Blocks that a row takes beyond what its request has.
    pub(super) fn row_blocks(&self, view: &RequestView, tokens: usize) -> usize {
        let owned = match view.brings {
            Some(brings) => brings,
            None => blocks_for(view.past, self.block_size),
        };
        self.cache_blocks(view.past + tokens).saturating_sub(owned)
    }

    /// Blocks that a branch takes: all but the full ones that it shares.
    pub(super) fn branch_blocks(&self, view: &RequestView, tokens: usize) -> usize {
        let shared = view.past / self.block_size.max(1);
        self.cache_blocks(view.past + tokens).saturating_sub(shared)
    }

    /// Blocks that hold so many tokens; 0 for a model without a paged cache.
    fn cache_blocks(&self, tokens: usize) -> usize {
        if self.blocks == 0 {
            return 0;
        }
        blocks_for(tokens, self.block_size)
    }

    /// The most tokens one request can have, alone in the cache; callers cut ceilings here and refuse longer prompts.
    pub(crate) fn most_tokens(&self) -> usize {
        if self.blocks == 0 {
            usize::MAX
        } else {
            self.blocks.saturating_mul(self.block_size)
        }
    }
}
