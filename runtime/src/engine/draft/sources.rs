//! The sources of one engine, in the order in which they propose.

use super::caller::CallerDrafter;
use super::head::HeadDrafter;
use super::lookup::LookupDrafter;
use super::{Cut, Drafter, Drafting};
use crate::engine::accept::Decided;
use crate::engine::error::EngineError;
use crate::exec::Decoder;
use crate::ids::RequestId;
use crate::speculate::{Source, Speculation};
use crate::txn::{Participant, ParticipantError, Permit};

/// Failures of one source in a row after which it is not asked again.
const MAX_FAILURES: usize = 2;

/// All sources; at most one of each kind.
#[derive(Debug)]
pub(in crate::engine) struct Sources {
    drafters: Vec<Box<dyn Drafter>>,
    /// Failures since the last step that was published, and the source that failed.
    failures: usize,
    /// Sources that are not asked any more, and why.
    disabled: Vec<(Source, String)>,
}

impl Sources {
    /// The sources that a mode may use. Callers' drafts always come first, lookups last: what they find can follow what a
    /// head drafts.
    pub(in crate::engine) fn of(mode: Speculation, head: Option<Decoder>) -> Self {
        let mut drafters: Vec<Box<dyn Drafter>> = Vec::new();
        if mode != Speculation::Off {
            drafters.push(Box::new(CallerDrafter));
        }
        let looks_up = mode.looks_up(head.is_some());
        if let Some(head) = head {
            drafters.push(Box::new(HeadDrafter::new(head)));
        }
        if looks_up {
            drafters.push(Box::new(LookupDrafter::default()));
        }
        Self {
            drafters,
            failures: 0,
            disabled: Vec::new(),
        }
    }

    /// Whether the decoder's hidden rows are read.
    pub(in crate::engine) fn reads_hidden(&self) -> bool {
        self.has(Source::Head)
    }

    /// Whether a source can be asked.
    pub(in crate::engine) fn has(&self, source: Source) -> bool {
        self.drafters
            .iter()
            .any(|drafter| drafter.source() == source)
    }

    /// Lets every source read the step and propose.
    ///
    /// # Errors
    /// The failure of a source, after which the step must be discarded. A source that keeps failing is not asked again:
    /// then the step goes on without it.
    pub(in crate::engine) fn propose(
        &mut self,
        drafting: &mut Drafting<'_, '_, '_>,
    ) -> Result<(), EngineError> {
        let mut failed = None;
        for (at, drafter) in self.drafters.iter_mut().enumerate() {
            if let Err(error) = drafter.propose(drafting) {
                self.failures += 1;
                if self.failures < MAX_FAILURES {
                    return Err(error);
                }
                failed = Some((at, error));
                break;
            }
        }
        if let Some((at, error)) = failed {
            self.disable(at, &error, drafting);
        }
        drafting
            .rows
            .iter_mut()
            .for_each(|row| tidy(row, drafting.vocab));
        Ok(())
    }

    /// Stops asking a source. What it has proposed in this step is dropped; what it keeps in the pools stays behind.
    fn disable(&mut self, at: usize, error: &EngineError, drafting: &mut Drafting<'_, '_, '_>) {
        let drafter = self.drafters.remove(at);
        let (source, reason) = (drafter.source(), format!("it failed: {error}"));
        tracing::error!(%source, %error, "a source of drafts is not asked any more");
        self.disabled.push((source, reason));
        for row in drafting.rows.iter_mut() {
            row.proposal = Default::default();
            row.head_kept = 0;
        }
    }

    /// Sources that failed, and why.
    pub(in crate::engine) fn disabled(&self) -> &[(Source, String)] {
        &self.disabled
    }

    /// See [`Drafter::fork`].
    pub(in crate::engine) fn fork(&mut self, from: RequestId, to: RequestId, cut: Cut) {
        self.drafters.iter_mut().for_each(|d| d.fork(from, to, cut));
    }

    /// See [`Drafter::transfer`].
    pub(in crate::engine) fn transfer(&mut self, from: RequestId, to: RequestId) {
        self.drafters.iter_mut().for_each(|d| d.transfer(from, to));
    }

    /// See [`Drafter::forget`].
    pub(in crate::engine) fn forget(&mut self, of: RequestId) {
        self.drafters.iter_mut().for_each(|d| d.forget(of));
    }

    /// See [`Drafter::unread`].
    pub(in crate::engine) fn unread(&self, of: RequestId) -> &[f32] {
        let all = self.drafters.iter().map(|drafter| drafter.unread(of));
        all.max_by_key(|rows| rows.len()).unwrap_or_default()
    }

    /// See [`Drafter::restore`].
    pub(in crate::engine) fn restore(&mut self, of: RequestId, unread: &[f32]) {
        let drafters = self.drafters.iter_mut();
        drafters.for_each(|drafter| drafter.restore(of, unread.to_vec()));
    }

    /// Bytes that sources hold outside the pools.
    pub(in crate::engine) fn bytes(&self) -> usize {
        self.drafters.iter().map(|drafter| drafter.bytes()).sum()
    }
}

/// Drops what cannot be run: tokens that do not exist, with what follows them, and more drafts than were asked for.
fn tidy(row: &mut Decided, vocab: usize) {
    let most = row.room.min(row.choice.drafts);
    let tree = &mut row.proposal.tree;
    tree.keep(|token| usize::try_from(token).is_ok_and(|token| token < vocab));
    tree.cut(most, most.saturating_mul(row.choice.width));
    row.proposal.source = row.choice.source.filter(|_| !row.proposal.tree.is_empty());
}

/// The sources take part in the step in which they proposed.
impl Participant for &mut Sources {
    fn name(&self) -> &'static str {
        "sources of drafts"
    }

    fn validate(&self) -> Result<(), ParticipantError> {
        Ok(())
    }

    fn prepare(&mut self) -> Result<(), ParticipantError> {
        Ok(())
    }

    fn publish(&mut self, _permit: &Permit) {
        self.failures = 0;
        self.drafters
            .iter_mut()
            .for_each(|drafter| drafter.publish());
    }

    fn discard(&mut self) {
        self.drafters
            .iter_mut()
            .for_each(|drafter| drafter.discard());
    }
}
