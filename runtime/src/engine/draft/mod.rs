//! Sources of drafts at work: what they read in a step, what they propose for the next one.
//!
//! Sources propose at the end of a step, between the decision on what is kept and the commit: then the drawn tokens are
//! known, and what a source keeps of its own can join the transaction. Whatever a source proposes can change only how
//! many positions the next step computes, never which tokens are drawn.

mod branching;
mod caller;
mod governor;
mod head;
mod lookup;
mod pace;
mod sources;
mod staged;

use super::accept::Decided;
use super::active::Active;
use super::error::EngineError;
use crate::ids::RequestId;
use crate::sample::Scratch;
use crate::speculate::Source;
use crate::txn::{Reserved, Step};
use std::fmt;
use std::time::Duration;

pub(super) use branching::OPEN;
pub(super) use governor::{CostStore, Drafted, Governor, Measured};
pub(super) use sources::Sources;
pub(super) use staged::Staged;

/// A source of drafts for all requests of an engine.
///
/// What a source keeps of a request is private to it, keyed by the request (or by the kept state that outlived one), and
/// moves with the step: [`Drafter::propose`] stages, then exactly one of [`Drafter::publish`] and [`Drafter::discard`]
/// follows. Between steps it is copied, handed over and forgotten together with the state in the pools.
pub(super) trait Drafter: fmt::Debug + Send {
    /// Which one it is.
    fn source(&self) -> Source;

    /// Reads what the step has brought, and adds drafts to the rows whose choice asks it for some.
    ///
    /// # Errors
    /// Failures of the source as a whole. The step is discarded; rows that it cannot serve simply get no drafts.
    fn propose(&mut self, drafting: &mut Drafting<'_, '_, '_>) -> Result<(), EngineError>;

    /// Tokens of the longest ending of a row that the source finds again, where it looks any up.
    fn survey(&mut self, _active: &Active, _row: &Decided) -> Option<usize> {
        None
    }

    /// The step was checked: room is made for what publishing keeps.
    fn prepare(&mut self) {}

    /// The step was published: what was staged becomes what the source keeps.
    fn publish(&mut self) {}

    /// The step was discarded, and with it what was staged.
    fn discard(&mut self) {}

    /// Gives `to` a copy of what is kept of `from`, as far as it concerns the first `tokens` of its `committed` tokens.
    fn fork(&mut self, _from: RequestId, _to: RequestId, _cut: Cut) {}

    /// Hands what is kept of `from` over to `to`.
    fn transfer(&mut self, _from: RequestId, _to: RequestId) {}

    /// Forgets a request or a kept state.
    fn forget(&mut self, _of: RequestId) {}

    /// What must be saved with the state of a request: hidden rows of committed tokens, the last ones, that are still to
    /// be read. `[n, width]`.
    fn unread(&self, _of: RequestId) -> &[f32] {
        &[]
    }

    /// Takes back what [`Drafter::unread`] gave.
    fn restore(&mut self, _of: RequestId, _unread: Vec<f32>) {}

    /// Bytes held for all requests.
    fn bytes(&self) -> usize {
        0
    }
}

/// A part of a state: its first tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Tokens wanted.
    pub(super) tokens: usize,
    /// Tokens that there are.
    pub(super) committed: usize,
}

/// A step whose outcome is decided and not yet committed, as sources see it.
pub(super) struct Drafting<'d, 's, 'a> {
    pub(super) step: &'d mut Step<'s, Reserved>,
    /// One per row of the plan. Sources add to [`Decided::proposal`].
    pub(super) rows: &'d mut [Decided],
    pub(super) requests: &'d [Active],
    /// The decoder's hidden rows, `[num_tokens, width]`, where a source asked for them.
    pub(super) hidden: &'a [f32],
    pub(super) scratch: &'d mut Scratch,
    /// Tokens that exist are below this.
    pub(super) vocab: usize,
    /// Says whether a head should draft once more.
    pub(super) governor: &'d Governor,
    /// Counts runs of a head.
    pub(super) passes: &'d mut u64,
    /// Time of each source.
    pub(super) spent: &'d mut Vec<(Source, Duration)>,
}
