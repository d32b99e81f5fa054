//! A loaded model: files, sessions, contract, memory plan.

mod contract;
pub(crate) mod graph_io;
mod info;
mod load;
mod options;
mod plan;
mod source;
pub(crate) mod spec;
pub(crate) mod tensor_spec;
#[cfg(test)]
pub(crate) mod test_onnx;
#[cfg(test)]
pub(crate) mod test_toy;
mod verify;

pub use contract::{ContractCode, ContractErrors, ContractMismatch};
pub use info::{ModelInfo, StateGroupInfo};
pub use load::Model;
pub use options::{LoadOptions, Provider};
pub use plan::{MemoryPlan, PlanEntry};
pub use verify::{Opened, VerifiedGraph, VerifyOptions, VerifyReport, verify};
