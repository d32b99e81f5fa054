//! `build-model`: a Hugging Face checkpoint to a model folder that Pawl runs.
//!
//! The export is built into a staging folder, verified by opening it in ONNX Runtime, and only then
//! published. Exit codes: 0 when the model is at its destination, 2 when anything was refused or
//! failed. Then nothing was left behind and an existing output is as it was. A build that is killed
//! leaves a hidden staging folder, which the next build to the same output removes.

mod args;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;

use args::Args;
use clap::Parser;
use pawl::{LoadError, VerifyOptions, VerifyReport, verify};
use pawl_builder::{BuildError, BuildReport, build};
use show::Bar;
use thiserror::Error;

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(done) => {
            show::finished(&done, args.json);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// A published model.
#[derive(Debug)]
struct Done {
    output: PathBuf,
    report: BuildReport,
    verified: VerifyReport,
}

/// Why there is no model.
#[derive(Debug, Error)]
enum Failure {
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error("the export could not be verified and was removed: {0}")]
    Verify(#[from] LoadError),
}

fn run(args: &Args) -> Result<Done, Failure> {
    let staged = build(&args.request(), &mut Bar::default())?;
    let verified = verify(staged.path(), &VerifyOptions::new())?;
    let (output, report) = staged.publish()?;
    Ok(Done {
        output,
        report,
        verified,
    })
}
