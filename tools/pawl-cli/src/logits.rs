//! `pawl logits`.

use crate::error::CliError;
use crate::load::{Ids, LoadArgs};
use crate::numbers::whole;
use crate::output::Target;
use pawl::{EvaluateOptions, Evaluation};
use safetensors::tensor::{Dtype, TensorView};
use std::path::PathBuf;

/// Options of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The model folder.
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Tokens to run, such as 1,2,3.
    #[arg(long, value_name = "IDS")]
    ids: Ids,
    /// The safetensors file to write: float32 `logits` [n, vocab], and `mtp.logits` [n - 1, vocab] for a model with a
    /// head.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Tokens per step; 0 runs them all at once.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 512,
        value_parser = whole::<usize>(0),
        allow_negative_numbers = true
    )]
    chunk: usize,
    #[command(flatten)]
    load: LoadArgs,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let target = Target::new(&args.out)?;
    target.outside_model(&args.model)?;
    let mut model = args.load.load(&args.model)?;
    let options = EvaluateOptions::default().chunk(args.chunk);
    let found = model.evaluate(&[&args.ids.0], &options)?;
    found
        .first()
        .map_or(Ok(()), |evaluation| write(args, &target, evaluation))
}

fn write(args: &Args, target: &Target, evaluation: &Evaluation) -> Result<(), CliError> {
    let tokens = args.ids.0.len();
    let logits = bytes(&evaluation.logits);
    let head = evaluation.head_logits.as_deref().map(bytes);
    let view = |rows: usize, data| {
        TensorView::new(Dtype::F32, vec![rows, evaluation.vocab], data)
            .map_err(|e| CliError::file(&args.out, e))
    };
    let mut tensors = vec![("logits", view(tokens, &logits)?)];
    if let Some(head) = head.as_deref() {
        tensors.push(("mtp.logits", view(tokens.saturating_sub(1), head)?));
    }
    target.write_with(|partial| safetensors::serialize_to_file(tensors, None, partial))
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}
