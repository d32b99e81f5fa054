//! `pawl logits`.

use crate::error::CliError;
use crate::load::{Ids, LoadArgs};
use pawl::{EvaluateOptions, Evaluation};
use safetensors::tensor::{Dtype, TensorView};
use std::path::{Path, PathBuf};

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
        allow_negative_numbers = true
    )]
    chunk: usize,
    #[command(flatten)]
    load: LoadArgs,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let mut model = args.load.load(&args.model)?;
    let options = EvaluateOptions::default().chunk(args.chunk);
    let found = model.evaluate(&[&args.ids.0], &options)?;
    found
        .first()
        .map_or(Ok(()), |evaluation| write(args, evaluation))
}

/// Writes beside the target first, so that a failed write leaves an older file whole.
fn write(args: &Args, evaluation: &Evaluation) -> Result<(), CliError> {
    let wrong = |reason: &dyn std::fmt::Display| CliError::file(&args.out, reason);
    let tokens = args.ids.0.len();
    let logits = bytes(&evaluation.logits);
    let head = evaluation.head_logits.as_deref().map(bytes);
    let view = |rows: usize, data| {
        TensorView::new(Dtype::F32, vec![rows, evaluation.vocab], data).map_err(|e| wrong(&e))
    };
    let mut tensors = vec![("logits", view(tokens, &logits)?)];
    if let Some(head) = head.as_deref() {
        tensors.push(("mtp.logits", view(tokens.saturating_sub(1), head)?));
    }
    let target = target(&args.out)?;
    let folder = target.parent().unwrap_or(Path::new("."));
    let partial = tempfile::Builder::new()
        .prefix(".logits-")
        .tempfile_in(folder)
        .map_err(|e| wrong(&e))?
        .into_temp_path();
    safetensors::serialize_to_file(tensors, None, &partial).map_err(|e| wrong(&e))?;
    partial.persist(&target).map_err(|e| wrong(&e))
}

/// The file to write, through a link if it is one. Only regular files are replaced.
fn target(out: &Path) -> Result<PathBuf, CliError> {
    match std::fs::metadata(out) {
        Ok(found) if found.is_file() => out.canonicalize().map_err(|e| CliError::file(out, e)),
        Ok(_) => Err(CliError::file(out, "is not a regular file")),
        Err(_) => std::path::absolute(out).map_err(|e| CliError::file(out, e)),
    }
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}
