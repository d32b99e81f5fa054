//! The composite transaction against a naive model, and every way out of a step.

mod fixture;
mod phases;
