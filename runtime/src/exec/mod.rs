//! ONNX Runtime sessions and the one place that runs them.

mod step;

pub(crate) use step::{Capture, StepInputs, StepOutputs};
