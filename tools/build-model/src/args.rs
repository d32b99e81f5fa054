//! The command line.

use std::path::PathBuf;

use clap::Parser;
use pawl_builder::{
    BuildOptions, BuildRequest, CheckpointOption, Dtype, HeadHidden, HeadOrder, MtpWeights,
    Spelling, Target,
};

/// Builds an ONNX model folder from a Hugging Face checkpoint.
#[derive(Debug, Parser)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
#[command(name = "build-model", version)]
pub(crate) struct Args {
    /// Folder of the checkpoint: config.json and safetensors.
    #[arg(long, value_name = "DIR")]
    input: PathBuf,
    /// Folder to make; it must not exist.
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// Provider to build for: cpu or cuda.
    #[arg(long, value_name = "TARGET", default_value_t)]
    target: Target,
    /// Element type: f32 on the CPU; f16 (the default there) or bf16 on CUDA.
    #[arg(long, value_name = "TYPE")]
    dtype: Option<Dtype>,
    /// Checkpoints of fixed state: state:W or update:W with W of 1 to 8, or none. One more than
    /// the number of tokens that can be drafted at a time.
    #[arg(long, value_name = "FORM", default_value_t)]
    checkpoints: CheckpointOption,
    /// Leave the multi-token prediction head out.
    #[arg(long)]
    no_mtp: bool,
    /// The hidden row that the multi-token prediction head reads: after-norm (as in Qwen3.5) or before-norm.
    #[arg(long, value_name = "ROW", default_value_t)]
    mtp_hidden: HeadHidden,
    /// The first half of that head's input: embedding-first (as in Qwen3.5) or hidden-first.
    #[arg(long, value_name = "ORDER", default_value_t)]
    mtp_order: HeadOrder,
    /// Weights of that head: int8 (8 bits with a scale for every 32, f32 on the CPU only; the output projection is then
    /// stored a second time, at 1.125 bytes a weight) or same (as the model's) [default: int8 on the CPU, same on CUDA].
    #[arg(long, value_name = "FORM")]
    mtp_weights: Option<MtpWeights>,
    /// Spelling of genai_config.json: pawl, or genai-0.18 for onnxruntime-genai (CUDA only).
    #[arg(long, value_name = "NAME", default_value_t)]
    spelling: Spelling,
    /// Longest sequence in tokens [default: what the model allows].
    #[arg(long, value_name = "N", value_parser = tokens, allow_negative_numbers = true)]
    max_sequence: Option<u32>,
    /// Refuse a checkpoint with NaN or infinite weights; without it they are kept, with a warning.
    #[arg(long)]
    refuse_nonfinite: bool,
    /// Replace the output if it is a model folder.
    #[arg(long)]
    force: bool,
    /// Print the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A number of tokens.
fn tokens(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("expected a whole number from 1 to {}", u32::MAX))
}

impl Args {
    /// What is asked for.
    pub(crate) fn request(&self) -> BuildRequest {
        let mut options = BuildOptions::default();
        options.target = self.target;
        options.dtype = self.dtype;
        options.checkpoints = self.checkpoints;
        options.mtp = !self.no_mtp;
        options.wiring.hidden = self.mtp_hidden;
        options.wiring.order = self.mtp_order;
        options.mtp_weights = self.mtp_weights;
        options.spelling = self.spelling;
        options.max_sequence = self.max_sequence;
        options.refuse_nonfinite = self.refuse_nonfinite;
        options.force = self.force;
        BuildRequest::new(&self.input, &self.output, options)
    }
}
