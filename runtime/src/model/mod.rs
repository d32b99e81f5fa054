//! A loaded model: files, sessions, contract, memory plan.

mod available;
mod commit;
mod contract;
mod fingerprint;
mod fixed_buffers;
pub(crate) mod graph_io;
mod info;
mod inspect;
mod load;
mod offer;
mod options;
mod plan;
mod protobuf;
mod source;
pub(crate) mod spec;
mod state_plan;
pub(crate) mod tensor_spec;
#[cfg(test)]
pub(crate) mod test_ngram;
#[cfg(test)]
pub(crate) mod test_onnx;
#[cfg(test)]
pub(crate) mod test_specs;
#[cfg(test)]
pub(crate) mod test_toy;
mod verify;

pub use contract::{ContractCode, ContractErrors, ContractMismatch};
pub(crate) use fingerprint::Fingerprint;
pub(crate) use fixed_buffers::{FixedBuffers, Lost};
pub use info::{HeadInfo, LimitsInfo, ModelInfo, SpeculativeInfo, StateGroupInfo};
pub use inspect::{Inspection, inspect};
pub use load::Model;
pub use options::{LoadOptions, Provider};
pub use plan::{MemoryPlan, PlanEntry};
pub use state_plan::{CachePlan, StateBytes, StateGroupPlan, StatePlan};
pub use verify::{Opened, VerifiedGraph, VerifyOptions, VerifyReport, verify};
