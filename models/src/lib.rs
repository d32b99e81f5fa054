//! What a language model architecture is: layer plan, dimensions, weight names.

mod description;
mod error;

pub use description::{
    Attention, CheckpointInfo, GatedDelta, Layer, Mixer, Mlp, ModelDescription, MtpHead, Norm,
    Rope, ShortConv, Skipped, SpecialTokens, Transform, Weight, WeightPart,
};
pub use error::{DescribeError, Refusal, TensorProblem};

/// Describes a checkpoint.
///
/// # Errors
/// [`DescribeError`]: which setting or tensor is not as expected.
pub fn describe(checkpoint: &CheckpointInfo) -> Result<ModelDescription, DescribeError> {
    Err(DescribeError::UnknownArchitecture {
        found: checkpoint
            .config
            .get("model_type")
            .map_or_else(|| "nothing".to_owned(), ToString::to_string),
        known: Vec::new(),
    })
}
