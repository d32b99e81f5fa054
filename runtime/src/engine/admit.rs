//! Planning a step beside kept states: which ones make room.

use super::active::Active;
use super::core::Core;
use super::kept::Kept;
use crate::ids::RequestId;
use crate::kv::{BlockId, Blocks};
use crate::request::Reuse;
use crate::schedule::{self, Deferral, Held, Limits, RequestView, StepPlan};
use std::collections::HashSet;

/// Steps that a request waits before it may have a kept state that another waiting request continues.
const PATIENCE: usize = 64;

impl Core {
    /// Plans a step. Kept states are evicted, oldest first, as long as some request waits that would be admitted if
    /// nothing were kept. That is done between steps, as when their owners drop them: it makes the room in which the plan
    /// fits, and stands whatever becomes of the step.
    pub(super) fn admit(&mut self) -> StepPlan {
        let mut plan = self.plan_beside_kept();
        if !self.kept.is_empty() && !plan.deferred.is_empty() {
            let alone = self.plan_alone();
            while let Some(victim) = self.victim(&plan, &alone) {
                self.evict(victim);
                plan = self.plan_beside_kept();
            }
        }
        plan
    }

    fn plan_beside_kept(&self) -> StepPlan {
        let views: Vec<RequestView> = self.requests.iter().map(|a| self.view(a)).collect();
        let waiting = views.iter().any(|view| !view.resident);
        let held = if waiting {
            self.held()
        } else {
            Held::default()
        };
        schedule::plan(&views, &self.limits_beside(held))
    }

    pub(super) fn limits_beside(&self, held: Held) -> Limits {
        Limits {
            held,
            free_blocks: self.composite.free_blocks(),
            ..self.limits
        }
    }

    /// The plan if no state were kept.
    fn plan_alone(&self) -> StepPlan {
        let fresh = |active: &Active| {
            let view = active.view();
            let committed = if view.resident { view.past } else { 0 };
            RequestView {
                past: committed,
                pending: view.pending + view.past - committed,
                ..view
            }
        };
        let views: Vec<RequestView> = self.requests.iter().map(fresh).collect();
        schedule::plan(&views, &self.limits)
    }

    fn view(&self, active: &Active) -> RequestView {
        let continued = active.continues.as_ref().filter(|_| !active.resident);
        let brings = continued.map(|kept| {
            let [decoder, head] = self.composite.blocks(kept.id()).map(<[_]>::len);
            Blocks { decoder, head }
        });
        RequestView {
            brings,
            ..active.view()
        }
    }

    /// What kept states take of the pools. Blocks that a resident request uses as well are counted there.
    pub(super) fn held(&self) -> Held {
        let residents = self.requests.iter().filter(|active| active.resident);
        let [running, running_head] = self.used(residents.map(|active| active.id));
        let [kept, kept_head] = self.used(self.kept.iter().map(|state| state.id));
        Held {
            slots: self.kept.iter().count(),
            blocks: Blocks {
                decoder: kept.difference(&running).count(),
                head: kept_head.difference(&running_head).count(),
            },
        }
    }

    /// Blocks of the decoder's cache and of the head's that any of these use.
    fn used(&self, requests: impl Iterator<Item = RequestId>) -> [HashSet<BlockId>; 2] {
        let mut used = [HashSet::new(), HashSet::new()];
        for request in requests {
            for (used, blocks) in used.iter_mut().zip(self.composite.blocks(request)) {
                used.extend(blocks);
            }
        }
        used
    }

    /// The state to evict so that a request that waits beside kept states, and would not wait without them, comes in:
    /// the oldest that no waiting request continues. One that a waiting request continues is left to it, so that turns
    /// of conversations do not take each other's states, unless nothing runs or somebody has been patient; then the
    /// one of the last in the queue goes.
    fn victim(&self, plan: &StepPlan, alone: &StepPlan) -> Option<RequestId> {
        let hindered = |id: &RequestId| waits_for_room(alone).all(|other| other != *id);
        let hindered: Vec<RequestId> = waits_for_room(plan).filter(hindered).collect();
        if hindered.is_empty() {
            return None;
        }
        let continued = |id: RequestId| self.requests.iter().any(|a| a.continues_from(id));
        let mut free = self.kept.iter().filter(|state| !continued(state.id));
        if let Some(oldest) = free.next() {
            return Some(oldest.id);
        }
        let mut waited = self.requests.iter().filter(|a| hindered.contains(&a.id));
        if !plan.rows.is_empty() && waited.all(|active| active.waited < PATIENCE) {
            return None;
        }
        let last = self.requests.iter().rev();
        last.filter_map(|active| active.continues.as_ref())
            .map(Kept::id)
            .next()
    }

    fn evict(&mut self, id: RequestId) {
        tracing::info!(state = id.value(), "a kept state was evicted");
        self.counters.evicted();
        self.release_kept(id);
        let waiting = self.requests.iter_mut().filter(|a| a.continues_from(id));
        waiting.for_each(|active| active.start_afresh(Reuse::Gone));
    }

    /// Frees a kept state; nothing happens if it is gone.
    pub(super) fn release_kept(&mut self, id: RequestId) {
        if self.kept.remove(id).is_none() {
            return;
        }
        self.sources.forget(id);
        // A kept state is known to the composite, so its release cannot be refused.
        if let Err(error) = self.composite.release(id) {
            tracing::error!(%error, state = id.value(), "release was refused");
        }
    }

    /// A request arrives: the state it continues must still be there, and no other request may be waiting with it.
    pub(super) fn check_continuation(&self, active: &mut Active) {
        let Some(id) = active.continues.as_ref().map(Kept::id) else {
            return;
        };
        let promised = self.requests.iter().any(|other| other.continues_from(id));
        if promised || self.kept.get(id).is_none() {
            active.start_afresh(Reuse::Gone);
        }
    }
}

/// Requests that wait because the pools are full.
fn waits_for_room(plan: &StepPlan) -> impl Iterator<Item = RequestId> {
    let full = |reason: Deferral| match reason {
        Deferral::Slots | Deferral::Blocks | Deferral::Turn => true,
        Deferral::Step => false,
    };
    let waiting = plan.deferred.iter().filter(move |d| full(d.reason));
    waiting.map(|deferred| deferred.request)
}
