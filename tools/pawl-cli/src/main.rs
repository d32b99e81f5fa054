//! The `pawl` command line.

mod chat;
mod error;
mod generate;
mod grammar;
mod inspect;
mod limits;
mod load;
mod logits;
mod numbers;
mod output;
mod prompts;
mod trace;

use clap::{Parser, Subcommand};
use error::CliError;
use genai_config_schema::printable;
use std::io::{self, Write};
use std::process::ExitCode;

/// Exit code for everything that was refused or failed.
const FAILED: u8 = 2;
/// Exit code when the reader of the output has gone: what a shell reports of a process that ends by SIGPIPE.
const READER_GONE: u8 = 141;

/// Runs hybrid language models on ONNX Runtime.
#[derive(Debug, Parser)]
#[command(name = "pawl", version, about)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Talks with a model, turn by turn.
    Chat(chat::Args),
    /// Continues prompts; several run as one batch.
    Generate(generate::Args),
    /// Shows a model's configuration, state groups and memory plan.
    Inspect(inspect::Args),
    /// Writes the logits of given tokens to a safetensors file.
    Logits(logits::Args),
    /// Draws a trace of `generate --trace` as a page.
    Trace(trace::Args),
}

/// Makes a write beyond the bound on file sizes fail, as on a full disk, instead of ending the process with a partial file
/// left behind.
fn fail_large_writes() {
    // Where no handler can be set, the signal ends the process as before.
    #[cfg(unix)]
    let _ = signal_hook::flag::register(
        signal_hook::consts::SIGXFSZ,
        std::sync::Arc::<std::sync::atomic::AtomicBool>::default(),
    );
}

fn main() -> ExitCode {
    fail_large_writes();
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(answer) => return tell(&answer),
    };
    let outcome = match args.command {
        Command::Chat(args) => chat::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Logits(args) => logits::run(&args),
        Command::Trace(args) => trace::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

/// Prints a help text, or what is wrong with the command line.
fn tell(answer: &clap::Error) -> ExitCode {
    match answer.print() {
        Ok(()) if answer.use_stderr() => ExitCode::from(FAILED),
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&CliError::Output(error)),
    }
}

/// Says what went wrong, where anybody can hear it.
fn failed(error: &CliError) -> ExitCode {
    if let CliError::Output(cause) = error
        && cause.kind() == io::ErrorKind::BrokenPipe
    {
        return ExitCode::from(READER_GONE);
    }
    let told = error.to_string();
    let _ = writeln!(io::stderr(), "error: {}", printable(&told));
    ExitCode::from(FAILED)
}
