//! Everything an engine owns, on its one thread.

use super::active::Active;
use super::draft::{CostStore, Governor, Measured, Sources};
use super::error::EngineError;
use super::kept::{KeptCounters, KeptStates};
use super::observe::{Observer, StepTimes};
use super::options::EngineOptions;
use super::pools::{self, PoolExtent};
use super::worker::Submission;
use crate::exec::{StepInputs, StepOutputs};
use crate::ids::RequestId;
use crate::model::Model;
use crate::request::{FinishReason, RequestError};
use crate::sample::Scratch;
use crate::schedule::{Held, Limits};
use crate::speculate::{EffectiveSpeculation, Offer, SpeculationStats, Spent};
use crate::txn::Composite;
use std::sync::{Arc, Mutex};

/// Deferred requests may be overtaken this often before nothing is admitted before them.
const MAX_OVERTAKES: usize = 64;

/// The engine's state between steps. `engine/step.rs` runs one step.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) model: Model,
    pub(super) composite: Composite,
    pub(super) limits: Limits,
    /// Unfinished requests, in order of arrival.
    pub(super) requests: Vec<Active>,
    /// What finished requests left.
    pub(super) kept: KeptStates,
    pub(super) counters: Arc<KeptCounters>,
    pub(super) inputs: StepInputs,
    pub(super) outputs: StepOutputs,
    pub(super) scratch: Scratch,
    /// Where drafts come from.
    pub(super) sources: Sources,
    /// How many there are.
    pub(super) governor: Governor,
    /// Of the last step.
    pub(super) measured: Measured,
    pub(super) speculation: EffectiveSpeculation,
    pub(super) totals: SpeculationStats,
    /// The totals as the engine's handles see them.
    pub(super) shown: Arc<Mutex<SpeculationStats>>,
    /// Whether the invariants are checked around every step.
    pub(super) audit: bool,
    pub(super) observer: Option<Observer>,
    /// Of the last step.
    pub(super) times: StepTimes,
    /// Runs of a head in the last step.
    pub(super) passes: u64,
    /// What a step is said to have cost where choices must not depend on the machine.
    #[cfg(test)]
    pub(super) price: Option<fn(&mut Measured)>,
}

impl Core {
    /// Allocates the pools that the model's memory plan counts.
    pub(super) fn new(
        mut model: Model,
        options: &EngineOptions,
        speculation: EffectiveSpeculation,
        costs: CostStore,
    ) -> Result<Self, EngineError> {
        let planned = &model.limits;
        let extent = PoolExtent {
            slots: planned.slots,
            rows: planned.checkpoint_rows,
            blocks: planned.kv_blocks,
        };
        let head = model.head.take().filter(|_| speculation.mode.heads());
        let place = (&*model.device, model.commit.take());
        let of_head = head.as_ref().map(|head| head.state());
        let composite = pools::allocate(model.decoder.state(), of_head, extent, place)?;
        let limits = limits(&model, &composite, options, speculation.max_drafts);
        Ok(Self {
            model,
            composite,
            limits,
            requests: Vec::new(),
            kept: KeptStates::default(),
            counters: Arc::default(),
            inputs: StepInputs::default(),
            outputs: StepOutputs::default(),
            scratch: Scratch::default(),
            governor: Governor::new(
                speculation.clone(),
                (limits.step_rows, limits.max_scheduled_tokens),
                costs,
            ),
            measured: Measured::default(),
            sources: Sources::of(speculation.mode, head),
            speculation,
            totals: SpeculationStats::default(),
            shown: Arc::default(),
            audit: options.audit.unwrap_or(cfg!(debug_assertions)),
            observer: options.observer.clone(),
            times: StepTimes::default(),
            passes: 0,
            #[cfg(test)]
            price: None,
        })
    }

    /// Takes a request in. It runs when the planner admits it.
    pub(super) fn submit(&mut self, submission: Submission) {
        let mut active = Active::new(submission, self.limits.most_tokens());
        if active.tokens.len() > self.limits.most_tokens() {
            active.fail(RequestError::does_not_fit(
                active.tokens.len(),
                self.limits.most_tokens(),
            ));
            return;
        }
        self.check_continuation(&mut active);
        self.requests.push(active);
    }

    /// Ends a request in whatever phase it is; nothing happens if it has ended.
    pub(super) fn cancel(&mut self, id: RequestId) {
        if let Some(active) = self.requests.iter_mut().find(|active| active.id == id) {
            active.end(FinishReason::Cancelled);
        }
        self.sweep();
    }

    /// Ends every request by an error.
    pub(super) fn fail_all(&mut self, error: &EngineError) {
        for active in &mut self.requests {
            active.fail(RequestError::from(error));
        }
        self.sweep();
    }

    /// What the last step cost.
    pub(super) fn spent(&self) -> Spent {
        Spent {
            run: self.times.run,
            draft: self.times.draft,
            commit: self.times.commit,
            draft_passes: self.passes,
        }
    }

    /// Releases what finished requests hold, but for what they leave.
    pub(super) fn sweep(&mut self) {
        let Self {
            composite,
            kept,
            sources,
            governor,
            ..
        } = self;
        self.requests.retain_mut(|active| {
            active.end_of_reading();
            if active.is_finished() {
                governor.forget(active.id);
            }
            if let Some(left) = active.left.take() {
                kept.push(left);
                return false;
            }
            if active.is_finished() {
                sources.forget(active.id);
            }
            if active.is_finished() && active.resident {
                // A resident request is known to the composite, so its release cannot be refused.
                if let Err(error) = composite.release(active.id) {
                    tracing::error!(%error, request = active.id.value(), "release was refused");
                }
            }
            !active.is_finished()
        });
    }
}

fn limits(
    model: &Model,
    composite: &Composite,
    options: &EngineOptions,
    max_drafts: usize,
) -> Limits {
    let (blocks, block_size) = composite.cache_extent();
    let (configured, state) = (model.limits.scheduled_tokens, model.decoder.state());
    Limits {
        max_batch_size: composite.capacity(),
        step_rows: model.limits.checkpoint_rows,
        max_scheduled_tokens: options
            .max_scheduled_tokens
            .map_or(configured, |tokens| tokens.get()),
        max_chunk: options.prefill_chunk.get(),
        max_drafts,
        // Without fixed state there is nothing to capture.
        drafts_beside_prefill: state.captures_in_mixed_steps || state.fixed.is_empty(),
        slots: composite.capacity(),
        blocks,
        free_blocks: blocks.decoder,
        block_size,
        max_overtakes: MAX_OVERTAKES,
        held: Held::default(),
    }
}

/// What the model offers to drafts.
pub(super) fn offer(model: &Model) -> Offer {
    let has = (model.head.is_some(), model.device.host_visible());
    let state = model.decoder.state();
    model.limits.offer(&model.config, state, has)
}
