//! The contract of everything that moves in a step.

use super::phase::Published;
use std::ops::{Deref, DerefMut};

/// Why a participant cannot go on.
pub(crate) type ParticipantError = Box<dyn std::error::Error + Send + Sync>;

/// Proof that a step passed every phase, or that a change between steps was checked. Only the composite transaction can make
/// one, so only it can commit.
#[derive(Debug)]
pub(crate) struct Permit(());

impl Permit {
    /// To publish a step that went through all phases.
    pub(super) fn to_publish(_: Published) -> Self {
        Self(())
    }

    /// To release and to transfer, which are checked as a whole and then cannot fail.
    pub(super) fn between_steps() -> Self {
        Self(())
    }
}

/// Something that changes with a committed step, and only with one.
///
/// A participant holds its change beside the state that others see. It leaves a step by exactly one of two exits:
/// [`publish`](Self::publish) makes the change visible, [`discard`](Self::discard) forgets it and leaves everything
/// visible as it was, bit for bit. Neither may fail or panic; whatever may fail belongs into
/// [`prepare`](Self::prepare).
pub(crate) trait Participant {
    /// Short name for messages.
    fn name(&self) -> &'static str;

    /// Checks, without changing anything, that the change still fits what others see.
    fn validate(&self) -> Result<(), ParticipantError>;

    /// Does all fallible work. Others must not see any of it.
    fn prepare(&mut self) -> Result<(), ParticipantError>;

    /// Makes the change visible.
    fn publish(&mut self, permit: &Permit);

    /// Forgets the change.
    fn discard(&mut self);
}

impl<P: Participant + ?Sized> Participant for Box<P> {
    fn name(&self) -> &'static str {
        (**self).name()
    }
    fn validate(&self) -> Result<(), ParticipantError> {
        (**self).validate()
    }
    fn prepare(&mut self) -> Result<(), ParticipantError> {
        (**self).prepare()
    }
    fn publish(&mut self, permit: &Permit) {
        (**self).publish(permit);
    }
    fn discard(&mut self) {
        (**self).discard();
    }
}

/// A participant's place in a step: an armed latch that discards on drop unless it was published.
#[derive(Debug)]
pub(crate) struct Seat<P: Participant> {
    participant: P,
    published: bool,
}

impl<P: Participant> Seat<P> {
    /// Seats a participant whose change is reserved.
    pub(crate) fn new(participant: P) -> Self {
        Self {
            participant,
            published: false,
        }
    }

    /// The exit of a participant that a test drives by itself.
    #[cfg(test)]
    pub(crate) fn publish_alone(self) {
        self.publish(&Permit(()));
    }

    /// The exit of a committed step.
    pub(super) fn publish(mut self, permit: &Permit) {
        self.published = true;
        self.participant.publish(permit);
    }
}

impl<P: Participant> Drop for Seat<P> {
    fn drop(&mut self) {
        if !self.published {
            self.participant.discard();
        }
    }
}

impl<P: Participant> Deref for Seat<P> {
    type Target = P;
    fn deref(&self) -> &P {
        &self.participant
    }
}

impl<P: Participant> DerefMut for Seat<P> {
    fn deref_mut(&mut self) -> &mut P {
        &mut self.participant
    }
}
