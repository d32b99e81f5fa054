//! ONNX Runtime sessions and the one place that runs them.

mod environment;
mod library;
mod step;

pub(crate) use environment::{Loaded, Wanted, environment, load};
pub use library::LibraryError;
pub(crate) use library::Version;
pub(crate) use step::{Capture, StepInputs, StepOutputs};
