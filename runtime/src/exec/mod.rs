//! ONNX Runtime sessions and the one place that runs them.

mod bound_run;
mod buffer_value;
pub(crate) mod commit;
mod debts;
mod decoder;
mod environment;
mod executor;
mod library;
mod session;
mod shared_weights;
mod step;
mod step_check;
mod tensor_value;

pub(crate) use commit::{CommitGraphs, CommitRows, CommitTask};
pub(crate) use decoder::{Decoder, Signature, StepInput};
#[cfg(test)]
pub(crate) use environment::environment;
pub use environment::{LibraryInfo, check_library};
pub(crate) use environment::{Loaded, Wanted, load, loaded_version};
#[cfg(test)]
pub(crate) use executor::{Executor, Run};
pub use library::LibraryError;
pub(crate) use library::Version;
pub(crate) use session::{Session, SessionSettings};
pub(crate) use shared_weights::{SharedTensor, SharedWeights, WeightsError};
pub(crate) use step::{Capture, StepInputs, StepOutputs};
