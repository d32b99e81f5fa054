//! What a language model architecture is: layer plan, dimensions, weight names.

mod config;
mod decoder;
mod description;
mod error;
mod refuse;
mod registry;
mod rope;
mod tensors;
mod tokens;

mod lfm2;
mod llama;
mod qwen3;
mod qwen3_5;

pub use description::{
    Attention, CheckpointInfo, GatedDelta, Layer, Mixer, Mlp, ModelDescription, MtpHead, Norm,
    Rope, ShortConv, Skipped, SpecialTokens, Transform, Weight, WeightPart,
};
pub use error::{DescribeError, Refusal, TensorProblem};
pub use registry::model_types;

/// Describes a checkpoint.
///
/// # Errors
/// [`DescribeError`]: which setting or tensor is not as expected.
pub fn describe(checkpoint: &CheckpointInfo) -> Result<ModelDescription, DescribeError> {
    registry::describe(checkpoint)
}
