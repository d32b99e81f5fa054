//! From a Hugging Face checkpoint to ONNX with separate checkpoint outputs.

mod blocks;
mod checkpoints;
#[allow(dead_code, reason = "used by the build")]
mod config;
#[allow(dead_code, reason = "used by the build")]
mod decoder;
#[allow(dead_code, reason = "shorthands of parts that follow")]
mod error;
mod graph;
mod inputs;
mod mtp;
mod names;
mod ops;
mod options;
mod plan;
mod rope;
mod symbols;
mod target;

pub use error::BuildError;
pub use options::{
    BuildOptions, CheckpointOption, Dtype, OptionsError, Spelling, Target, UnknownValue,
};
