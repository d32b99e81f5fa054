//! Requests that go on from kept states: given them for a step, and for good once it is published.

use super::core::Core;
use super::kept::{Kept, KeptState};
use crate::ids::RequestId;
use crate::request::Reuse;
use crate::schedule::StepPlan;

/// A state that a request was given for one step.
#[derive(Debug)]
pub(super) struct TakeOver {
    request: RequestId,
    /// The request's handle.
    kept: Kept,
    /// The engine's side. While it lives, handles say that the state is held.
    state: KeptState,
    /// Its place among the kept ones.
    at: usize,
    /// What the request's caller would have been told about reuse.
    before: Reuse,
}

impl Core {
    /// Gives kept states to the requests that were admitted with them. [`Core::keep_taken`] or [`Core::give_back`] follows.
    pub(super) fn take_over(&mut self, plan: &mut StepPlan) -> Vec<TakeOver> {
        let mut taken = Vec::new();
        for row in plan.rows.iter_mut().filter(|row| row.new) {
            let own = self.requests.iter_mut().find(|a| a.id == row.request);
            let Some((active, kept)) = own.and_then(|a| {
                let kept = a.continues.take()?;
                Some((a, kept))
            }) else {
                continue;
            };
            let held = self.kept.take(kept.id());
            match (held, self.composite.transfer(kept.id(), active.id)) {
                (Some((at, state)), Ok(())) => {
                    self.sources.transfer(kept.id(), active.id);
                    let before = active.reuse;
                    active.took_over();
                    row.new = false;
                    taken.push(TakeOver {
                        request: active.id,
                        kept,
                        state,
                        at,
                        before,
                    });
                }
                (held, transferred) => {
                    tracing::error!(
                        ?transferred,
                        request = active.id.value(),
                        "a kept state was refused"
                    );
                    held.into_iter()
                        .for_each(|(at, state)| self.kept.put(at, state));
                    active.start_afresh(Reuse::Gone);
                }
            }
        }
        // A row that was planned on a refused state must not run.
        plan.rows.retain(|row| !row.new || row.past() == 0);
        taken
    }

    /// The step was published: the states are their requests' now.
    pub(super) fn keep_taken(&mut self, taken: Vec<TakeOver>) {
        for TakeOver { kept, .. } in taken {
            self.sources.forget(kept.id());
        }
    }

    /// The step was discarded: the states are kept again, in the order in which they were, and their requests wait.
    pub(super) fn give_back(&mut self, taken: Vec<TakeOver>) {
        for TakeOver {
            request,
            kept,
            state,
            at,
            before,
        } in taken.into_iter().rev()
        {
            // What was transferred a moment ago can be transferred back.
            if let Err(error) = self.composite.transfer(request, kept.id()) {
                tracing::error!(%error, request = request.value(), "a state could not be given back");
                continue;
            }
            self.sources.transfer(request, kept.id());
            self.kept.put(at, state);
            if let Some(active) = self.requests.iter_mut().find(|a| a.id == request) {
                active.gave_back(kept, before);
            }
        }
    }
}
