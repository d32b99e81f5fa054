//! What sources and the governor change in a step, until it is known whether the step is published.

use super::{Governor, Sources};
use crate::txn::{Participant, ParticipantError, Permit};

/// Takes back what a step has staged, however the step ends, unless it is published. Made before anything is staged;
/// seated in the step once all is.
#[derive(Debug)]
pub(in crate::engine) struct Staged<'a> {
    pub(in crate::engine) sources: &'a mut Sources,
    pub(in crate::engine) governor: &'a mut Governor,
    left: bool,
}

impl<'a> Staged<'a> {
    pub(in crate::engine) fn new(sources: &'a mut Sources, governor: &'a mut Governor) -> Self {
        Self {
            sources,
            governor,
            left: false,
        }
    }
}

impl Participant for Staged<'_> {
    fn name(&self) -> &'static str {
        "sources of drafts"
    }

    fn validate(&self) -> Result<(), ParticipantError> {
        Ok(())
    }

    fn prepare(&mut self) -> Result<(), ParticipantError> {
        self.sources.prepare();
        Ok(())
    }

    fn publish(&mut self, _permit: &Permit) {
        self.left = true;
        self.sources.publish();
        self.governor.settle();
    }

    fn discard(&mut self) {
        if !std::mem::replace(&mut self.left, true) {
            self.sources.discard();
            self.governor.revert();
        }
    }
}

/// The exit of a step that ends before this is seated.
impl Drop for Staged<'_> {
    fn drop(&mut self) {
        self.discard();
    }
}
