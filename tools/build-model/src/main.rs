//! `build-model`: a Hugging Face checkpoint to a model folder that Pawl runs.
//!
//! The ONNX Runtime library is checked, the export is built into a staging folder, verified by opening
//! it in ONNX Runtime, and only then published. Exit codes: 0 when the model is at its destination, 2
//! when anything was refused or failed, 128 plus the number of the signal (130, 143, 129) after SIGINT,
//! SIGTERM or SIGHUP that came before that. Whenever it is not 0, nothing was left behind and an existing output is as it was.
//! Only a build that is killed outright leaves a hidden staging folder, which the next build to the same
//! output removes.

mod args;
mod show;
mod signals;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::PoisonError;

use args::Args;
use clap::Parser;
use genai_config_schema::printable;
use pawl::{LibraryError, LoadError, VerifyOptions, VerifyReport, check_library, verify};
use pawl_builder::{BuildError, BuildReport, BuildRequest, build};
use show::Bar;
use thiserror::Error;

/// Exit code for everything that was refused or failed.
const FAILED: u8 = 2;
/// Exit code when the reader of a help text has gone: what a shell reports of a process that ends by SIGPIPE.
const READER_GONE: u8 = 141;

fn main() -> ExitCode {
    signals::fail_large_writes();
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(answer) => return tell(&answer),
    };
    let request = args.request();
    let outcome = run(&request);
    if outcome.is_err() && request.interrupt.is_stopped() {
        // The thread that stopped the build ends the process.
        loop {
            std::thread::park();
        }
    }
    match outcome {
        Ok(done) => {
            show::finished(&done, args.json);
            ExitCode::SUCCESS
        }
        Err(error) => {
            let told = error.to_string();
            let _ = writeln!(io::stderr(), "error: {}", printable(&told));
            ExitCode::from(FAILED)
        }
    }
}

/// Prints a help text, or what is wrong with the command line.
fn tell(answer: &clap::Error) -> ExitCode {
    match answer.print() {
        Ok(()) if answer.use_stderr() => ExitCode::from(FAILED),
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::from(READER_GONE),
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: standard output: {error}");
            ExitCode::from(FAILED)
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
    #[error("nothing was built, since it could not be verified: {0}")]
    Library(#[from] LibraryError),
    #[error("signals cannot be watched: {0}")]
    Signals(io::Error),
    #[error("the export could not be verified and was removed: {0}")]
    Verify(#[from] LoadError),
}

fn run(request: &BuildRequest) -> Result<Done, Failure> {
    let published = signals::Published::default();
    signals::watch(&request.interrupt, &published).map_err(Failure::Signals)?;
    // An export may take an hour; that it cannot be verified is known before.
    check_library(None)?;
    let staged = build(request, &mut Bar::default())?;
    let verified = verify(staged.path(), &VerifyOptions::new())?;
    let mut done = published.lock().unwrap_or_else(PoisonError::into_inner);
    let (output, report) = staged.publish()?;
    *done = true;
    drop(done);
    Ok(Done {
        output,
        report,
        verified,
    })
}
