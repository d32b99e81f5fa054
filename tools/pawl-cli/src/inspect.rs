//! `pawl inspect`.

use crate::error::CliError;
use crate::load::LoadArgs;
use std::io::Write;
use std::path::PathBuf;

/// Options of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The model folder.
    #[arg(value_name = "DIR")]
    model: PathBuf,
    #[command(flatten)]
    load: LoadArgs,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let model = args.load.load(&args.model)?;
    let mut output = std::io::stdout().lock();
    writeln!(output, "{}", model.info())?;
    writeln!(output, "{}", model.memory_plan())?;
    Ok(())
}
