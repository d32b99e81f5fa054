//! One step, in six phases: plan, reserve, run, accept, commit, deliver.

use super::active::{Active, Change, Delivery, Progress};
use super::core::Core;
use super::error::EngineError;
use super::pack::{self, LogitsOf};
use crate::ids::RequestId;
use crate::request::{Advance, RequestError};
use crate::sample::Scratch;
use crate::schedule::{self, RowPlan, StepPlan};
use crate::txn::StepRow;
use std::time::Instant;

/// Whether there was anything to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A step was published.
    Ran,
    /// No request can run.
    Idle,
}

/// What sampling decided for one row.
enum Decision {
    /// The row draws nothing in this step.
    Nothing,
    /// What the drawn token does to the request.
    Advance(Advance),
    /// The row's request cannot go on; its neighbours can.
    Failed(RequestError),
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
        for active in self.requests.iter_mut().filter(|a| is_planned(&plan, a.id)) {
            active.clock.start(now);
        }
        let delivered = self.transact(&plan)?;
        self.deliver(&plan, delivered);
        self.sweep();
        Ok(Outcome::Ran)
    }

    /// Chooses rows, and refuses what can never run.
    fn plan(&mut self) -> StepPlan {
        let views: Vec<_> = self.requests.iter().map(Active::view).collect();
        let plan = schedule::plan(&views, &self.limits);
        let most = self.limits.most_tokens();
        for active in self
            .requests
            .iter_mut()
            .filter(|a| plan.unserviceable.contains(&a.id))
        {
            active.fail(RequestError::does_not_fit(active.tokens.len(), most));
        }
        for active in &mut self.requests {
            let deferred = plan
                .deferred
                .iter()
                .find(|deferred| deferred.request == active.id);
            active.overtaken += deferred.map_or(0, |deferred| deferred.overtaken);
            active.waited = if is_planned(&plan, active.id) {
                0
            } else {
                active.waited + 1
            };
        }
        self.sweep();
        plan
    }

    /// Reserve, run, accept, commit. Returning early drops the step, which discards it.
    fn transact(&mut self, plan: &StepPlan) -> Result<Vec<Delivered>, EngineError> {
        let Self {
            model,
            composite,
            requests,
            inputs,
            outputs,
            scratch,
            ..
        } = self;
        pack::clear(inputs);
        for row in &plan.rows {
            pack_row(inputs, row, requests);
        }
        let rows: Vec<StepRow> = plan.rows.iter().map(|row| row.step_row(0)).collect();
        let mut step = composite
            .reserve(&rows)
            .map_err(|e| EngineError::discarded(&e))?;
        step.fill(inputs);

        let (capture, buffers) = (step.capture(), step.buffers());
        model.decoder.run(
            inputs,
            buffers.paged,
            buffers.fixed,
            capture,
            outputs,
            false,
        )?;

        let vocab = model.decoder.vocab();
        let mut logits = outputs.logits.chunks_exact(vocab.max(1));
        let mut progress = Progress {
            changes: Vec::with_capacity(plan.rows.len()),
        };
        let mut delivered = Vec::with_capacity(plan.rows.len());
        let mut others: Vec<&mut Active> = requests.iter_mut().collect();
        for row in &plan.rows {
            let Some(at) = others.iter().position(|active| active.id == row.request) else {
                continue;
            };
            let active = others.swap_remove(at);
            let logits = if row.wants_logits {
                logits.next()
            } else {
                None
            };
            let (advance, entry) = match decide(active, logits, scratch) {
                Decision::Nothing => (None, None),
                Decision::Failed(error) => (None, Some(Err(error))),
                Decision::Advance(advance) => {
                    let (tokens, text) = (advance.tokens.clone(), advance.text.clone());
                    (Some(advance), Some(Ok(Delivery { tokens, text })))
                }
            };
            delivered.extend(entry.map(|entry| (row.request, entry)));
            let committed = row.past() + row.num_tokens();
            progress.changes.push(Change {
                active,
                committed,
                advance,
            });
        }
        step.join(Box::new(progress));

        let step = step.accept_all().validate().and_then(|step| step.prepare());
        step.map_err(|e| EngineError::discarded(&e))?.publish();
        Ok(delivered)
    }

    /// Tells callers what was published.
    fn deliver(&mut self, plan: &StepPlan, delivered: Vec<Delivered>) {
        let now = Instant::now();
        debug_assert!(delivered.len() <= plan.rows.len());
        for (id, entry) in delivered {
            let Some(active) = self.requests.iter_mut().find(|active| active.id == id) else {
                continue;
            };
            match entry {
                Ok(delivery) => {
                    active.clock.drew(now);
                    active.deliver(delivery);
                }
                Err(error) => active.fail(error),
            }
        }
    }
}

/// What the caller of one request is told after the step.
type Delivered = (RequestId, Result<Delivery, RequestError>);

fn is_planned(plan: &StepPlan, id: RequestId) -> bool {
    plan.rows.iter().any(|row| row.request == id)
}

fn pack_row(inputs: &mut crate::exec::StepInputs, row: &RowPlan, requests: &[Active]) {
    let active = requests.iter().find(|active| active.id == row.request);
    let tokens = active
        .and_then(|active| active.tokens.get(row.tokens.clone()))
        .unwrap_or_default();
    let logits = if row.wants_logits {
        LogitsOf::Last(1)
    } else {
        LogitsOf::Nothing
    };
    pack::push_row(inputs, row.past(), tokens.iter().copied(), logits);
}

/// Draws the row's next token and plans what it does. Changes nothing.
fn decide(active: &Active, logits: Option<&[f32]>, scratch: &mut Scratch) -> Decision {
    let Some(logits) = logits else {
        return Decision::Nothing;
    };
    let position = active.tokens.len() as u64;
    let drawn = match active.sampler.draw(logits, position, scratch) {
        Ok(drawn) => drawn,
        Err(error) => return Decision::Failed(RequestError::sampling(&error)),
    };
    match active.cursor.plan(&[drawn.token]) {
        Ok(advance) => Decision::Advance(advance),
        Err(error) => Decision::Failed(RequestError::text(&error)),
    }
}
