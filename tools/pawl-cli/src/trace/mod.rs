//! `pawl trace`.

mod draw;
mod format;
mod record;
mod texts;
mod tree;
mod wrong;

use crate::error::CliError;
use crate::limits::TRACE_BYTES;
use crate::output::Target;
use format::Trace;
use genai_config_schema::printable;
pub(crate) use record::Recorder;
use std::io::Write;
use std::path::PathBuf;

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
    let text = genai_config_schema::read_regular(&args.file, TRACE_BYTES);
    let text = text.map_err(|error| failed(&error))?;
    let (page, out) = (out.display().to_string(), Target::new(&out)?);
    if out.is(&args.file) {
        return Err(CliError::Usage("--out is the trace itself".to_owned()));
    }
    let trace = Trace::from_json(&text).map_err(|reason| failed(&reason))?;
    drop(text);
    let drawn = draw::page(&trace).map_err(|error| failed(&error))?;
    out.write(drawn.as_bytes())?;
    let told = format!("wrote `{page}`");
    let _ = writeln!(std::io::stderr(), "{}", printable(&told));
    Ok(())
}
