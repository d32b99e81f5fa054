//! From a Hugging Face checkpoint to ONNX with separate checkpoint outputs.

mod blocks;
mod build_request;
mod checkpoints;
mod config;
mod decoder;
mod error;
mod graph;
mod inputs;
mod mtp;
mod names;
mod onnx;
mod ops;
mod options;
mod plan;
mod report;
mod rope;
mod source;
mod stage;
mod symbols;
mod target;
#[cfg(test)]
mod testing;

pub use build_request::{BuildRequest, Progress, StagedExport, build};
pub use error::BuildError;
pub use options::{
    BuildOptions, CheckpointOption, Dtype, OptionsError, Spelling, Target, UnknownValue,
};
pub use report::{BuildReport, EffectiveOptions, ReportedFile, SkippedTensors};
