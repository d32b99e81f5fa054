//! Choices that are taken back: those of a step that was discarded.

use super::explore::Explored;
use super::idle::Idle;
use super::{Controller, Known, Present, Source};
use crate::ids::RequestId;
use std::collections::HashMap;

/// What the latest choice has changed, as it was before.
#[derive(Debug)]
pub(super) struct Undo {
    requests: HashMap<RequestId, Known>,
    idle: Idle,
    explored: Explored,
    present: Option<Present>,
    /// Trials that were begun. What is known of their sources counts for less once the choice stands.
    pub(super) begun: Vec<(RequestId, Source)>,
}

impl Controller {
    /// Remembers what a choice changes, before it is made. The one before stands.
    pub(super) fn remember(&mut self) {
        self.settle();
        self.undo = Some(Undo {
            requests: self.requests.clone(),
            idle: self.idle,
            explored: self.explored,
            present: self.present.take(),
            begun: Vec::new(),
        });
    }

    /// The latest choice stands: its step was published.
    pub(crate) fn settle(&mut self) {
        let begun = self.undo.take().map_or(Vec::new(), |undo| undo.begun);
        for (request, source) in begun {
            self.acceptance.relax(request, source);
        }
    }

    /// Takes the latest choice back: its step was discarded, so the next one chooses from where this one did.
    pub(crate) fn revert(&mut self) {
        let Some(undo) = self.undo.take() else {
            return;
        };
        self.requests = undo.requests;
        self.idle = undo.idle;
        self.explored = undo.explored;
        self.present = undo.present;
    }
}
