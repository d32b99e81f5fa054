//! The sources of one engine, in the order in which they propose.

use super::caller::CallerDrafter;
use super::head::HeadDrafter;
use super::lookup::LookupDrafter;
use super::{Cut, Drafter, Drafting};
use crate::engine::accept::Decided;
use crate::engine::active::{Active, Delivered};
use crate::engine::error::EngineError;
use crate::exec::Decoder;
use crate::ids::RequestId;
use crate::speculate::{Departure, Source, Speculation};
use std::time::Instant;

/// Failures of one source in a row after which it is not asked again.
const MAX_FAILURES: usize = 2;

/// All sources; at most one of each kind.
#[derive(Debug)]
pub(in crate::engine) struct Sources {
    drafters: Vec<Box<dyn Drafter>>,
    /// Failures since the last step that was published, and the source that failed.
    failures: usize,
    /// How well the head agrees with the decoder.
    agreement: Agreement,
    /// Sources that are not asked any more, and why, as far as nobody has been told yet.
    news: Vec<(Source, String)>,
}

/// How often a head's first drafts were what the decoder drew, until that is judged.
#[derive(Debug, Default)]
struct Agreement {
    compared: usize,
    agreed: usize,
    /// Times that it was asked for drafts and none could be drawn, until it drafts for the first time.
    silent: usize,
    /// Whether it ever drafted: where it does not later, that lies with the request.
    spoke: bool,
}

impl Agreement {
    /// First drafts after which a head is judged: one that was never right, and one that was as good as never.
    const NEVER: usize = 32;
    const ENOUGH: usize = 64;
    /// Times in a row that nothing can be drawn before a head is given up.
    const SILENT: usize = 4;

    /// Whether it may still turn out to agree with next to nothing.
    fn is_open(&self) -> bool {
        self.compared < Self::ENOUGH && self.agreed <= Self::ENOUGH / 64
    }

    /// Counts one first draft. A reason once, when a head has agreed with next to nothing: its export is wired wrongly, for a
    /// head that is merely bad guesses a common token now and then.
    fn count(&mut self, agreed: bool) -> Option<String> {
        if !self.is_open() {
            return None;
        }
        self.compared += 1;
        self.agreed += usize::from(agreed);
        let never = self.compared >= Self::NEVER && self.agreed == 0;
        let hardly = self.compared >= Self::ENOUGH && self.agreed <= Self::ENOUGH / 64;
        (never || hardly).then(|| {
            format!(
                "{} of its first {} drafts agreed with the decoder; the model may have been exported with the wrong \
                 --mtp-hidden or --mtp-order",
                self.agreed, self.compared
            )
        })
    }

    /// Counts a time that it was asked for drafts.
    fn asked(&mut self, drafted: bool) -> Option<String> {
        self.spoke |= drafted;
        self.silent += usize::from(!drafted);
        (!self.spoke && self.silent >= Self::SILENT).then(|| {
            format!(
                "no draft could be drawn from its logits {} times in a row; they may not be finite numbers",
                self.silent
            )
        })
    }
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
            agreement: Agreement::default(),
            news: Vec::new(),
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
            let start = Instant::now();
            let proposed = drafter.propose(drafting);
            drafting.spent.push((drafter.source(), start.elapsed()));
            if let Err(error) = proposed {
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
        for row in drafting.rows.iter_mut() {
            let mut requests = drafting.requests.iter();
            let active = requests.find(|active| active.id == row.request);
            tidy(row, active, drafting.vocab, drafting.governor.runs_trees());
        }
        Ok(())
    }

    /// See [`Drafter::prepare`].
    pub(super) fn prepare(&mut self) {
        self.drafters
            .iter_mut()
            .for_each(|drafter| drafter.prepare());
    }

    /// The step in which sources proposed was published.
    pub(super) fn publish(&mut self) {
        self.failures = 0;
        self.drafters
            .iter_mut()
            .for_each(|drafter| drafter.publish());
    }

    /// It was discarded. Failures are counted on, or a source that always fails would never be left out.
    pub(super) fn discard(&mut self) {
        self.drafters
            .iter_mut()
            .for_each(|drafter| drafter.discard());
    }

    /// Tokens of the longest match that a lookup finds for a row; `None` for none.
    pub(in crate::engine) fn survey(&mut self, active: &Active, row: &Decided) -> Option<usize> {
        let mut drafters = self.drafters.iter_mut();
        drafters.find_map(|drafter| drafter.survey(active, row))
    }

    /// Stops asking a source. What it has proposed in this step is dropped; what it keeps in the pools stays behind.
    fn disable(&mut self, at: usize, error: &EngineError, drafting: &mut Drafting<'_, '_, '_>) {
        self.remove(at, format!("it failed: {error}"));
        for row in drafting.rows.iter_mut() {
            row.proposal = Default::default();
            row.head_kept = 0;
        }
    }

    fn remove(&mut self, at: usize, reason: String) {
        let source = self.drafters.remove(at).source();
        tracing::warn!(%source, reason, "a source of drafts is not asked any more");
        self.news.push((source, reason));
    }

    /// Whether nobody knows yet if the head agrees with the decoder at all: then its drafts are compared even where they do
    /// not pay.
    pub(in crate::engine) fn head_is_unproven(&self) -> bool {
        self.agreement.is_open()
    }

    /// Learns what became of one request's drafts in a published step. Where nothing could be drawn, nothing was compared.
    pub(in crate::engine) fn learn(&mut self, told: &Delivered) {
        let of_head = told.arm.filter(|arm| arm.source.heads());
        let Some(arm) = of_head.filter(|_| told.told.is_ok()) else {
            return;
        };
        // A head tells how sure it is of the drafts of a chain; what is there without was added by a lookup.
        let drafted = told.made > 0 && (arm.width > 1 || !told.confidences.is_empty());
        // What a grammar forbade was drawn, too.
        let drawn = drafted || told.round.forbidden > 0;
        let mut reason = self.agreement.asked(drawn);
        if drafted && told.round.evaluated > 0 {
            reason = reason.or(self.agreement.count(told.round.accepted > 0));
        }
        let mut drafters = self.drafters.iter();
        let head = drafters.position(|drafter| drafter.source() == Source::Head);
        if let (Some(at), Some(reason)) = (head, reason) {
            self.remove(at, reason);
        }
    }

    /// Sources that are not asked any more, and why: each of them once.
    pub(in crate::engine) fn news(&mut self) -> Vec<(Source, String)> {
        std::mem::take(&mut self.news)
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

/// Drops what cannot be run or kept: tokens that do not exist or that the grammar forbids, with what follows them, what would
/// follow the request's end, and more drafts than were asked for.
fn tidy(row: &mut Decided, active: Option<&Active>, vocab: usize, trees: bool) {
    let most = row.room.min(row.choice.drafts);
    let mut tree = std::mem::take(&mut row.proposal.tree);
    let made = tree.len();
    tree.keep(|token| usize::try_from(token).is_ok_and(|token| token < vocab));
    if row.choice.source == Some(Source::Caller) {
        let unknown = (tree.len() < made).then_some(Departure::UnknownTokens);
        let branches = !trees && !tree.is_chain();
        row.departures.extend(unknown);
        row.departures
            .extend(branches.then_some(Departure::Branches));
    }
    if let Some(active) = active {
        tree.end_early(|path| active.cursor.useful(row.fresh(), path));
    }
    if row.is_constrained() {
        let proposed = tree.len();
        tree.end_early(|path| row.legal(path));
        row.proposal.forbidden = proposed - tree.len();
    }
    tree.narrow(row.choice.width);
    tree.cut(most, row.choice.nodes.max(most));
    row.proposal.tree = tree;
    let alone = row.proposal.tail.filter(|(_, own)| *own == 0);
    let source = alone.map(|(source, _)| source).or(row.choice.source);
    row.proposal.source = source.filter(|_| !row.proposal.tree.is_empty());
    row.proposal.arm = row.choice.arm;
    row.proposal.why = Some(row.choice.why);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_that_has_drafted_is_not_taken_for_silent() {
        let silent = |agreement: &mut Agreement| {
            let asked = (0..2 * Agreement::SILENT).filter_map(|_| agreement.asked(false));
            asked.count()
        };
        let mut never = Agreement::default();
        assert!(silent(&mut never) > 0);
        let mut once = Agreement::default();
        assert_eq!(once.asked(true), None);
        assert_eq!(silent(&mut once), 0);
    }
}
