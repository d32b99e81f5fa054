//! What a plan is made from.

use crate::ids::RequestId;
use crate::kv::{Blocks, blocks_for};

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
    pub(crate) brings: Option<Blocks>,
}

/// What states that outlived their requests take of the pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Slots of fixed state.
    pub(crate) slots: usize,
    /// Blocks of the caches that no resident request uses.
    pub(crate) blocks: Blocks,
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
    /// Blocks of the caches; 0 for a model without them.
    pub(crate) blocks: Blocks,
    /// How many of the decoder's nobody uses now. Only branches ask: requests are admitted by what they can grow to.
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

    /// Blocks a request needs at its ceiling. A head reads no token that its decoder does not.
    pub(super) fn worst_blocks(&self, view: &RequestView) -> Blocks {
        let tokens = view.ceiling.max(view.past + view.pending);
        Blocks {
            decoder: held_by(tokens, self.blocks.decoder, self.block_size),
            head: held_by(tokens, self.blocks.head, self.block_size),
        }
    }

    /// Blocks that can be given away, so that every resident among `requests` can still grow to its ceiling beside what is
    /// kept. Whoever admits a request or keeps a state asks here; then no step lacks blocks.
    pub(crate) fn unclaimed<'a>(
        &self,
        requests: impl IntoIterator<Item = &'a RequestView>,
    ) -> Blocks {
        let residents = requests.into_iter().filter(|view| view.resident);
        let grown: Blocks = residents.map(|view| self.worst_blocks(view)).sum();
        self.blocks.without(grown + self.held.blocks)
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
            Some(brings) => brings.decoder,
            None => blocks_for(view.past, self.block_size),
        };
        self.cache_blocks(view.past + tokens).saturating_sub(owned)
    }

    /// Blocks that a branch takes: all but the full ones that it shares.
    pub(super) fn branch_blocks(&self, view: &RequestView, tokens: usize) -> usize {
        let shared = view.past / self.block_size.max(1);
        self.cache_blocks(view.past + tokens).saturating_sub(shared)
    }

    /// Blocks of the decoder's cache that hold so many tokens.
    fn cache_blocks(&self, tokens: usize) -> usize {
        held_by(tokens, self.blocks.decoder, self.block_size)
    }

    /// The most tokens one request can have, alone in the cache; callers cut ceilings here and refuse longer prompts.
    pub(crate) fn most_tokens(&self) -> usize {
        if self.blocks.decoder == 0 {
            usize::MAX
        } else {
            self.blocks.decoder.saturating_mul(self.block_size)
        }
    }
}

/// Blocks that hold so many tokens in a cache of `blocks` blocks; 0 where there is no such cache.
fn held_by(tokens: usize, blocks: usize, block_size: usize) -> usize {
    if blocks == 0 {
        return 0;
    }
    blocks_for(tokens, block_size)
}
