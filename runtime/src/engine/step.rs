//! One step, in six phases: plan, reserve, run, accept, commit, deliver.

use super::accept;
use super::accept::{Candidates, Decided};
use super::active::{Active, Delivered};
use super::core::Core;
use super::draft::{Drafting, OPEN, Sources};
use super::error::EngineError;
use super::observe::StepTimes;
use super::pack::{self, LogitsOf};
use crate::exec::Capture;
use crate::ids::RequestId;
use crate::request::RequestError;
use crate::schedule::{RowPlan, StepPlan};
use crate::speculate::{Choice, EffectiveSpeculation, Source};
use crate::txn::{Keep, StepRow};
use std::time::Instant;

/// Whether there was anything to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A step was published.
    Ran,
    /// No request can run.
    Idle,
}

impl Core {
    /// Runs one step over all requests that can run.
    ///
    /// # Errors
    /// The step was discarded; every request stands where it stood before.
    pub(super) fn step(&mut self) -> Result<Outcome, EngineError> {
        let plan = self.plan();
        if plan.rows.is_empty() {
            return Ok(Outcome::Idle);
        }
        let now = Instant::now();
        let before = self.books();
        let published = self.transact(&plan);
        if let Some(before) = before {
            self.check_books(&before, published.is_ok())?;
        }
        let delivered = published?;
        self.count_waits(&plan, now);
        self.show(&plan, &delivered);
        self.deliver(&plan, delivered);
        self.note_sources();
        self.sweep();
        Ok(Outcome::Ran)
    }

    /// Chooses rows, and refuses what can never run.
    fn plan(&mut self) -> StepPlan {
        let plan = self.admit();
        let most = self.limits.most_tokens();
        for active in self
            .requests
            .iter_mut()
            .filter(|a| plan.unserviceable.contains(&a.id))
        {
            active.fail(RequestError::does_not_fit(active.tokens.len(), most));
        }
        self.sweep();
        plan
    }

    /// Counts who ran in a published step that began at `now`, and who waited. A step that was discarded ran nobody.
    fn count_waits(&mut self, plan: &StepPlan, now: Instant) {
        for active in &mut self.requests {
            let deferred = plan
                .deferred
                .iter()
                .find(|deferred| deferred.request == active.id);
            active.overtaken += deferred.map_or(0, |deferred| deferred.overtaken);
            if is_planned(plan, active.id) {
                active.waited = 0;
                active.clock.start(now);
            } else {
                active.waited += 1;
            }
        }
    }

    /// Reserve, run, accept, draft, commit. Returning early drops the step, which discards it.
    fn transact(&mut self, plan: &StepPlan) -> Result<Vec<Delivered>, EngineError> {
        let rows = self.pack(plan);
        let heading = self.sources.reads_hidden();
        let mut draft_passes = 0;
        let Self {
            model,
            composite,
            requests,
            inputs,
            outputs,
            scratch,
            sources,
            speculation,
            ..
        } = self;
        let mut step = composite
            .reserve(&rows)
            .map_err(|e| EngineError::discarded(&e))?;
        step.fill(inputs);
        let (capture, buffers) = (step.capture(), step.buffers());
        let start = Instant::now();
        model.decoder.run(
            inputs,
            buffers.paged,
            buffers.fixed,
            capture,
            outputs,
            heading,
        )?;
        let run = start.elapsed();

        let found = (&*outputs, model.decoder.vocab());
        let mut decided = accept::decide(plan, &rows, requests, found, scratch);
        let start = Instant::now();
        choose(&mut decided, requests, (sources, speculation));
        sources.propose(&mut Drafting {
            step: &mut step,
            rows: &mut decided,
            requests,
            hidden: &outputs.hidden,
            scratch,
            vocab: model.decoder.vocab(),
            passes: &mut draft_passes,
        })?;
        let draft = start.elapsed();
        let keeps: Vec<Keep> = decided.iter().map(Decided::keep).collect();
        let (progress, delivered) = accept::progress(decided, requests);
        step.join(Box::new(progress));
        step.join(Box::new(sources));

        let start = Instant::now();
        let step = step.accept(&keeps).and_then(|step| step.validate());
        let step = step.and_then(|step| step.prepare());
        step.map_err(|e| EngineError::discarded(&e))?.publish();
        let commit = start.elapsed();
        self.times = StepTimes { run, draft, commit };
        self.passes = draft_passes;
        if capture == Capture::On {
            self.totals.capturing_steps = self.totals.capturing_steps.saturating_add(1);
        }
        Ok(delivered)
    }

    /// Packs the rows of a plan and tells what each of them needs from the pools.
    fn pack(&mut self, plan: &StepPlan) -> Vec<StepRow> {
        pack::clear(&mut self.inputs);
        let mut rows = Vec::with_capacity(plan.rows.len());
        for row in &plan.rows {
            let active = self.requests.iter().find(|a| a.id == row.request);
            let known = active.and_then(|a| a.tokens.get(row.tokens.clone()));
            let known = known.unwrap_or_default();
            let run = Candidates::of(active, row);
            for candidate in 0..run.len() {
                let tokens = known.iter().copied().chain(run.drafts(candidate));
                let logits = match (row.wants_logits, candidate) {
                    (false, _) => LogitsOf::Nothing,
                    // The logits after the last known token are those of the first row.
                    (true, 0) => LogitsOf::Last(run.own(0) + 1),
                    (true, _) => LogitsOf::Last(run.own(candidate)),
                };
                pack::push_row(&mut self.inputs, row.past(), tokens, logits);
            }
            let head_tokens = active.map_or(0, |active| self.head_tokens(active, row));
            let grows = self.speculation.width > 1 && self.sources.reads_hidden();
            let branches = if grows { OPEN } else { 0 };
            rows.push(StepRow {
                head_branches: vec![head_tokens; branches],
                ..row.step_row(head_tokens)
            });
        }
        rows
    }

    /// Positions that a head may write for a row: of the hidden rows that wait, of the row's own, and of drafts.
    fn head_tokens(&self, active: &Active, row: &RowPlan) -> usize {
        if !self.sources.reads_hidden() {
            return 0;
        }
        let waiting =
            self.sources.unread(active.id).len() / self.model.decoder.hidden_size().max(1);
        let chained = row.num_tokens() + self.speculation.max_drafts;
        waiting + chained.min(active.ceiling().saturating_sub(row.past()))
    }

    /// Notes which sources are not asked any more, and what they hold.
    fn note_sources(&mut self) {
        self.totals.held_bytes = u64::try_from(self.sources.bytes()).unwrap_or(u64::MAX);
        for (source, reason) in self.sources.news() {
            let reason = format!("{source}: {reason}");
            self.totals.fall_back(&reason, 1);
            for active in &mut self.requests {
                active.clock.fell_back(&reason);
            }
        }
    }

    /// Tells callers what was published.
    fn deliver(&mut self, plan: &StepPlan, delivered: Vec<Delivered>) {
        let now = Instant::now();
        debug_assert!(delivered.len() <= plan.rows.len());
        let spent = self.spent();
        self.totals.spend(&spent);
        for Delivered {
            request,
            round,
            told,
            ..
        } in delivered
        {
            let Some(active) = self.requests.iter_mut().find(|active| active.id == request) else {
                continue;
            };
            match told {
                Ok(delivery) => {
                    self.sources.learn(&round);
                    self.totals.count(&round);
                    active.clock.drew(now, &round, &spent);
                    active.deliver(delivery);
                }
                Err(error) => active.fail(error),
            }
        }
    }
}

fn is_planned(plan: &StepPlan, id: RequestId) -> bool {
    plan.rows.iter().any(|row| row.request == id)
}

/// Decides, for every row that drew tokens, where drafts for the next step come from and how many.
fn choose(
    rows: &mut [Decided],
    requests: &[Active],
    (sources, speculation): (&Sources, &EffectiveSpeculation),
) {
    for row in rows.iter_mut().filter(|row| row.room > 0) {
        let active = requests.iter().find(|active| active.id == row.request);
        let own = active.is_some_and(|active| active.drafts.is_some());
        let source = [
            (own && speculation.max_drafts > 0).then_some(Source::Caller),
            sources.has(Source::Head).then_some(Source::Head),
            sources.has(Source::Lookup).then_some(Source::Lookup),
        ];
        let source = source.into_iter().flatten().next();
        let tail = source == Some(Source::Head) && sources.has(Source::Lookup);
        row.choice = Choice {
            source,
            tail: tail.then_some(Source::Lookup),
            drafts: speculation.max_drafts,
            width: speculation.width,
            nodes: speculation.tree_nodes,
            why: "fixed",
        };
    }
}
