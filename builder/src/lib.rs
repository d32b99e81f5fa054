//! From a Hugging Face checkpoint to ONNX with separate checkpoint outputs.

mod options;

pub use options::{
    BuildOptions, CheckpointOption, Dtype, OptionsError, Spelling, Target, UnknownValue,
};
