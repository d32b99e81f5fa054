//! One step, in six phases: plan, reserve, run, accept, commit, deliver.

use super::accept;
use super::accept::{Candidates, Decided};
use super::active::{Active, Delivered};
use super::core::Core;
use super::draft::{Drafted, Drafting, OPEN, Staged};
use super::error::EngineError;
use super::observe::StepTimes;
use super::pack::{self, LogitsOf};
use crate::exec::Capture;
use crate::ids::RequestId;
use crate::request::RequestError;
use crate::schedule::{RowPlan, StepPlan};
use crate::speculate::{Source, control};
use crate::txn::{Keep, StepRow};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

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
        let mut plan = self.plan();
        if plan.rows.is_empty() {
            return Ok(Outcome::Idle);
        }
        let now = Instant::now();
        let before = self.books();
        let published = self.attempt(&mut plan);
        if let Some(before) = before {
            self.check_books(&before, published.is_ok())?;
        }
        let delivered = published?;
        self.measure(&plan, now.elapsed());
        #[cfg(test)]
        if let Some(price) = self.price {
            price(&mut self.measured);
        }
        self.governor.learn(&self.measured, &delivered);
        self.count_waits(&plan, now);
        self.show(&plan, &delivered);
        self.count(&delivered);
        self.note_sources();
        self.show_totals();
        self.deliver(&plan, delivered);
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

    /// The step, and the kept states that its requests take over with it.
    fn attempt(&mut self, plan: &mut StepPlan) -> Result<Vec<Delivered>, EngineError> {
        let taken = self.take_over(plan);
        let published = self.transact(plan);
        match &published {
            Ok(_) => self.keep_taken(taken),
            Err(_) => self.give_back(taken),
        }
        published
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
            governor,
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
        let staged = Staged::new(sources, governor);
        staged
            .governor
            .choose(&mut decided, requests, staged.sources);
        let mut by_source = Vec::new();
        staged.sources.propose(&mut Drafting {
            step: &mut step,
            rows: &mut decided,
            requests,
            hidden: &outputs.hidden,
            scratch,
            vocab: model.decoder.vocab(),
            governor: staged.governor,
            passes: &mut draft_passes,
            spent: &mut by_source,
        })?;
        let draft = start.elapsed();
        self.measured.drafting = drafted(&decided, &by_source);
        let keeps: Vec<Keep> = decided.iter().map(Decided::keep).collect();
        let (progress, delivered) = accept::progress(decided, requests);
        step.join(Box::new(progress));
        step.join(Box::new(staged));

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

    /// What the step that was just published cost.
    fn measure(&mut self, plan: &StepPlan, elapsed: Duration) {
        let decodes = plan.rows.iter().all(|row| !row.is_prefill);
        let contexts = plan.rows.iter().map(|row| row.tokens.end);
        self.measured.tokens = if decodes { plan.num_tokens() } else { 0 };
        self.measured.context = contexts.max().unwrap_or(0);
        self.measured.step = elapsed.saturating_sub(self.times.draft);
    }

    /// Notes which sources are not asked any more, and what they hold.
    fn note_sources(&mut self) {
        self.totals.held_bytes = u64::try_from(self.sources.bytes()).unwrap_or(u64::MAX);
        for active in &mut self.requests {
            if let Some(reason) = active.gave_up.take() {
                self.totals.fall_back(&reason, 1);
            }
        }
        for (source, reason) in self.sources.news() {
            self.governor.disable(source);
            let reason = format!("{source}: {reason}");
            self.totals.fall_back(&reason, 1);
            for active in &mut self.requests {
                active.clock.fell_back(&reason);
            }
        }
    }

    /// Adds what was published to the totals.
    fn count(&mut self, delivered: &[Delivered]) {
        self.totals.spend(&self.spent());
        for told in delivered {
            self.sources.learn(told);
            let is_here = self.requests.iter().any(|active| active.id == told.request);
            if is_here && told.told.is_ok() {
                self.totals.count(&told.round);
                self.totals.policy = told.next.clone().or(self.totals.policy.take());
            }
        }
    }

    /// Shows the totals to the handles of the engine: before callers hear of a step, so that a request that has ended is
    /// counted whole.
    fn show_totals(&self) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.clone_from(&self.totals);
    }

    /// Tells callers what was published.
    fn deliver(&mut self, plan: &StepPlan, delivered: Vec<Delivered>) {
        let now = Instant::now();
        debug_assert!(delivered.len() <= plan.rows.len());
        let spent = self.spent();
        for told in delivered {
            let Delivered {
                request,
                round,
                next,
                told,
                ..
            } = told;
            let Some(active) = self.requests.iter_mut().find(|active| active.id == request) else {
                continue;
            };
            match told {
                Ok(delivery) => {
                    active.clock.drew(now, &round, &spent);
                    if let Some(next) = next {
                        active.clock.decided(&next);
                    }
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

/// What was drafted in a step by each kind of source, and how long that took.
fn drafted(rows: &[Decided], spent: &[(Source, Duration)]) -> Vec<Drafted> {
    let users = |part: Source| {
        let uses = |row: &&Decided| [row.choice.source, row.choice.tail].contains(&Some(part));
        rows.iter().filter(uses).count().max(1)
    };
    // Kinds that share a source share its time by their requests.
    let time = |source: control::Source, requests: usize| {
        let parts: &[Source] = match source {
            control::Source::Caller => &[Source::Caller],
            control::Source::Lookup => &[Source::Lookup],
            control::Source::Head => &[Source::Head],
            control::Source::HeadThenLookup => &[Source::Head, Source::Lookup],
        };
        let parts = spent.iter().filter(|(source, _)| parts.contains(source));
        let share = |part: Source| requests as f64 / users(part) as f64;
        parts.map(|(part, time)| time.mul_f64(share(*part))).sum()
    };
    let of = |source: control::Source| {
        let of_source = |row: &&Decided| row.choice.arm.is_some_and(|arm| arm.source == source);
        let rows = rows.iter().filter(of_source);
        let drafts = rows.clone().map(|row| {
            let told = row.proposal.confidences.len();
            match row.choice.tail {
                // What was added after the head's drafts took no time of the head.
                Some(_) => told,
                None => told.max(row.proposal.spine().len()),
            }
        });
        let (drafts, requests) = (drafts.max()?, rows.count());
        Some(Drafted {
            source,
            drafts,
            requests,
            time: time(source, requests),
        })
    };
    control::Source::ALL.into_iter().filter_map(of).collect()
}
