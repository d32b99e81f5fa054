//! Checks around each step that the invariants of `manual::state` hold, the engine's own books included.

use super::core::Core;
use super::error::EngineError;
use crate::state::audit::{Invariant, Violation, audit, audit_step};
use crate::txn::Snapshot;

impl Core {
    /// The bookkeeping before a step, where steps are audited.
    pub(super) fn books(&self) -> Option<Snapshot> {
        self.audit.then(|| self.composite.snapshot())
    }

    /// Checks what a step left behind. A step that was discarded must have left everything as it was.
    ///
    /// # Errors
    /// Invariants that do not hold. Nothing that the engine keeps can be trusted any more.
    pub(super) fn check_books(
        &self,
        before: &Snapshot,
        published: bool,
    ) -> Result<(), EngineError> {
        let after = self.composite.snapshot();
        let mut found = audit(&after);
        found.extend(audit_step(before, &after));
        found.extend(self.own_violations());
        let mut broken: Vec<String> = found.iter().map(ToString::to_string).collect();
        if !published && after != *before {
            broken.push("a step that was discarded left traces".to_owned());
        }
        if broken.is_empty() {
            return Ok(());
        }
        Err(EngineError::Invariant {
            broken: broken.join("; "),
        })
    }

    /// I3 and I4 for the engine's own record of its requests.
    fn own_violations(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        let width = self.model.decoder.hidden_size().max(1);
        for active in &self.requests {
            let known = active.resident.then_some(active.committed);
            let kept = self.composite.tokens(active.id);
            if known.is_some() != kept.is_some() {
                found.push(Violation {
                    invariant: Invariant::I3,
                    found: format!(
                        "the engine and the pools disagree whether {} is resident",
                        active.id
                    ),
                });
            } else if known != kept || active.committed > active.tokens.len() {
                found.push(Violation {
                    invariant: Invariant::I4,
                    found: format!(
                        "the engine has {known:?} tokens of {}, the pools {kept:?}",
                        active.id
                    ),
                });
            }
            let head = self.composite.head_tokens(active.id);
            let unread = self.sources.unread(active.id).len() / width;
            let read = head.map(|head| head + unread);
            if self.sources.reads_hidden() && read > kept {
                found.push(Violation {
                    invariant: Invariant::I4,
                    found: format!(
                        "the head has {head:?} positions of {} and {unread} to read, {kept:?} tokens are committed",
                        active.id
                    ),
                });
            }
        }
        found
    }
}
