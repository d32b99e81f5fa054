//! `build-model`: a Hugging Face checkpoint to a model folder that Pawl runs.
//!
//! Exit codes: 0 when the model is at its destination, 2 when anything was refused or failed. Then
//! nothing was left behind and an existing output is as it was.

mod args;
mod show;

use std::process::ExitCode;

use args::Args;
use clap::Parser;
use pawl_builder::{BuildError, BuildReport, build};
use show::Bar;

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok((path, report)) => {
            show::finished(&path, &report, args.json);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<(std::path::PathBuf, BuildReport), BuildError> {
    let staged = build(&args.request(), &mut Bar::default())?;
    staged.publish()
}
