//! The seam between a checked step and what runs it.

use super::decoder::Signature;
#[cfg(feature = "cuda")]
use super::session::Session;
use super::step::{Capture, StepInputs, StepOutputs};
use crate::model::FixedBuffers;
use crate::model::spec::{PagedBuffers, StateSpec};

/// Runs the steps of one graph: a session of ONNX Runtime, or in tests a stand-in that can fail on purpose.
pub(crate) trait Executor: std::fmt::Debug + Send {
    /// Runs one step whose inputs were checked, as [`Decoder::run`](super::Decoder::run) promises it. The error says
    /// what went wrong.
    fn execute(&mut self, run: Run<'_>) -> Result<(), String>;

    /// Whether it makes the states that are owed to banks which Pawl's operators have had. Otherwise all are made by then.
    fn makes_owed(&self) -> bool {
        false
    }

    /// The session, where one runs the graph.
    #[cfg(feature = "cuda")]
    fn session(&self) -> Option<&Session> {
        None
    }
}

/// One step: what is read, kept and given.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    /// Names and widths.
    pub(crate) signature: &'a Signature,
    /// What the graph keeps.
    pub(crate) state: &'a StateSpec,
    /// What is read.
    pub(crate) inputs: &'a StepInputs,
    /// Read and written in place, in the order of `state`.
    pub(crate) paged: &'a mut [PagedBuffers],
    /// Read and written in place, in the order of `state`.
    pub(crate) fixed: &'a mut [FixedBuffers],
    /// Whether checkpoint outputs are bound.
    pub(crate) capture: Capture,
    /// What is given.
    pub(crate) outputs: &'a mut StepOutputs,
    /// Whether hidden rows are given.
    pub(crate) want_hidden: bool,
}
