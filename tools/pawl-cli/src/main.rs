//! The `pawl` command line.

mod chat;
mod error;
mod generate;
mod inspect;
mod load;
mod logits;
mod prompts;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Exit code for everything that was refused or failed.
const FAILED: u8 = 2;

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
}

fn main() -> ExitCode {
    let outcome = match Args::parse().command {
        Command::Chat(args) => chat::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Logits(args) => logits::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(FAILED)
        }
    }
}
