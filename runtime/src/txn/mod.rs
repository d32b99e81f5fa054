//! One step is one transaction.
//!
//! [`Composite`] owns the pools. [`Composite::reserve`] gives a [`Step`], whose phases consume each other:
//!
//! ```text
//! let mut step = composite.reserve(&rows)?;      // Step<Reserved>: slots, blocks claimed
//! step.fill(&mut inputs);                        // what the graph is told
//! run(&inputs, step.buffers(), step.capture())?; // operators write inactive rows, and make owed states
//! step.join(Box::new(cursors));                  // participants of the engine
//! let step = step.accept(&kept)?;                // Step<Accepted>
//! let step = step.validate()?.prepare()?;        // Step<Prepared>
//! let outcome = step.publish();                  // cannot fail
//! ```
//!
//! Any early return drops the step, and dropping discards. Commit methods of participants need a [`Permit`], which
//! nothing outside this folder can make.

mod branches;
mod composite;
mod error;
mod faults;
mod fork;
mod image;
mod outcome;
mod participant;
mod phase;
mod snapshot;
mod step;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod tests;
mod transfer;

#[cfg(test)]
pub(crate) use composite::Health;
pub(crate) use composite::{Composite, StepRow};
pub(crate) use error::StepError;
#[cfg(test)]
pub(crate) use faults::Faults;
pub(crate) use image::{HeadImage, StateImage};
#[cfg(test)]
pub(crate) use outcome::StepOutcome;
pub(crate) use participant::{Participant, ParticipantError, Permit, Seat};
#[cfg(test)]
pub(crate) use phase::Prepared;
pub(crate) use phase::Reserved;
pub(crate) use snapshot::{FixedSnapshot, PagedSnapshot, Snapshot};
pub(crate) use step::{Keep, Step};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use tests::play;
