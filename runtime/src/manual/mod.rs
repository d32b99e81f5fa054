//! How Pawl works, in prose: definitions, invariants, assumptions. No code lives here.

pub mod limits;
pub mod state;
