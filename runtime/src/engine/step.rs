//! One step, in six phases: plan, reserve, run, accept, commit, deliver.

use super::accept;
use super::active::Delivered;
use super::core::Core;
use super::error::EngineError;
use super::head::HeadDrafter;
use super::observe::StepTimes;
use super::pack::{self, LogitsOf};
use crate::exec::Capture;
use crate::ids::RequestId;
use crate::request::RequestError;
use crate::schedule::StepPlan;
use crate::speculate::Speculation;
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
        self.propose();
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
        self.sweep();
        Ok(Outcome::Ran)
    }

    /// Asks for drafts of every request that is about to decode. Those of a head were made by the step before.
    fn propose(&mut self) {
        let vocab = self.model.decoder.vocab();
        for active in self.requests.iter_mut().filter(|a| a.resident) {
            active.propose(&self.speculation, vocab);
        }
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
        let heading = self.speculation.mode == Speculation::Mtp;
        let rows = self.pack(plan);
        let Self {
            model,
            composite,
            requests,
            inputs,
            outputs,
            scratch,
            head_run,
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

        let mut decided = accept::decide(plan, requests, outputs, model.decoder.vocab(), scratch);
        if let (true, Some(head)) = (heading, &mut model.head) {
            let hidden = (outputs.hidden.as_slice(), model.decoder.hidden_size());
            let mut drafter = HeadDrafter {
                head,
                run: head_run,
                scratch,
                most: speculation.max_drafts,
            };
            drafter.draft(&mut step, &mut decided, &rows, hidden)?;
        }
        let keeps: Vec<Keep> = decided.iter().map(|row| row.keep(heading)).collect();
        let (progress, delivered) = accept::progress(decided, requests);
        step.join(Box::new(progress));

        let start = Instant::now();
        let step = step.accept(&keeps).and_then(|step| step.validate());
        let step = step.and_then(|step| step.prepare());
        step.map_err(|e| EngineError::discarded(&e))?.publish();
        let commit = start.elapsed();
        self.times = StepTimes { run, commit };
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
            let drafts = active.and_then(|a| a.proposal.get(..row.drafts));
            let tokens = known.into_iter().chain(drafts).flatten().copied();
            let logits = if row.wants_logits {
                LogitsOf::Last(row.drafts + 1)
            } else {
                LogitsOf::Nothing
            };
            pack::push_row(&mut self.inputs, row.past(), tokens, logits);
            let head_tokens = match (self.speculation.mode, active) {
                (Speculation::Mtp, Some(active)) => {
                    let chained = row.num_tokens() + self.speculation.max_drafts;
                    chained.min(active.ceiling().saturating_sub(row.past()))
                }
                _ => 0,
            };
            rows.push(row.step_row(head_tokens));
        }
        rows
    }

    /// Tells callers what was published.
    fn deliver(&mut self, plan: &StepPlan, delivered: Vec<Delivered>) {
        let now = Instant::now();
        debug_assert!(delivered.len() <= plan.rows.len());
        for Delivered {
            request,
            counts,
            told,
            ..
        } in delivered
        {
            let Some(active) = self.requests.iter_mut().find(|active| active.id == request) else {
                continue;
            };
            match told {
                Ok(delivery) => {
                    let (proposed, evaluated, accepted) = counts;
                    self.totals.count(proposed, evaluated, accepted);
                    active.clock.drew(now, counts);
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
