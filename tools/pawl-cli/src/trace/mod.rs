//! `pawl trace`.

mod draw;
mod format;
mod record;

use crate::error::CliError;
use format::Trace;
pub(crate) use record::Recorder;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Bytes of a trace that are read: some millions of steps.
const MOST_BYTES: u64 = 1 << 30;

/// Options of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The trace, as `pawl generate --trace` writes it.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The page to write; by default beside the trace, with the ending .html.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let failed = |error: &dyn ToString| CliError::file(&args.file, error.to_string());
    let out = match &args.out {
        Some(out) => out.clone(),
        None => args.file.with_extension("html"),
    };
    if out == args.file {
        return Err(CliError::Usage("--out is the trace itself".to_owned()));
    }
    let text = read(&args.file).map_err(|error| failed(&error))?;
    let trace = Trace::from_json(&text).map_err(|reason| failed(&reason))?;
    let page = draw::page(&trace).map_err(|error| failed(&error))?;
    std::fs::write(&out, page).map_err(|error| CliError::file(&out, error))
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let found = std::fs::metadata(path)?;
    if !found.is_file() {
        return Err(std::io::Error::other("expected a file"));
    }
    if found.len() > MOST_BYTES {
        let message = format!("expected at most {MOST_BYTES} bytes, found {}", found.len());
        return Err(std::io::Error::other(message));
    }
    let mut text = Vec::new();
    std::fs::File::open(path)?
        .take(MOST_BYTES)
        .read_to_end(&mut text)?;
    Ok(text)
}
