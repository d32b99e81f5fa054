//! From a Hugging Face checkpoint to ONNX with separate checkpoint outputs.

#[allow(dead_code, reason = "shorthands of parts that follow")]
mod error;
mod graph;
mod options;

pub use error::BuildError;
pub use options::{
    BuildOptions, CheckpointOption, Dtype, OptionsError, Spelling, Target, UnknownValue,
};
