//! A loaded model: files, sessions, contract, memory plan.

pub(crate) mod spec;
