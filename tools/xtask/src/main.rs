//! Project chores. `cargo xtask help` lists them.
#![allow(clippy::print_stdout, reason = "a command line tool prints")]

mod chores;
mod deps;
mod examples;
mod fuzz;
mod memory;
mod mistakes;
mod sanitize;
mod setup;
mod size;
mod source;

use clap::{Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Project chores")]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Clone, Subcommand)]
enum Chore {
    /// Fetches the pinned ONNX Runtime library with pip and unpacks it under .ort/.
    Setup,
    /// Exports the shipped checkpoint and generates from it.
    Demo,
    /// Runs every test.
    Test,
    /// Runs what continuous integration runs: format, lints, boundaries, tests, documentation.
    Ci,
    /// Runs fuzz targets with libFuzzer; needs a C++ compiler.
    Fuzz {
        /// Which target; all of them, in turn, without one.
        target: Option<String>,
        /// How long to run each.
        #[arg(long, default_value_t = 60)]
        seconds: u32,
    },
    /// Runs tests of unsafe code under the address sanitizer.
    Asan,
    /// Runs tests of unsafe code under valgrind.
    Valgrind,
    /// Measures the memory of an export of two gigabytes.
    Memory,
    /// Runs many requests of every kind; nothing may be left over.
    Soak {
        /// How many.
        #[arg(long, default_value_t = 2000)]
        requests: u32,
    },
    /// Checks the dependency direction and the boundaries of `ort` and `unsafe`.
    Deps,
    /// Checks that every public item of the crate `pawl` has an example.
    Examples,
    /// Checks the size budget of source files.
    Size,
    /// Makes deliberate mistakes in a copy of the tree, one at a time: a test must fail for each. Most share a build, those outside of functions take one each.
    Mistakes {
        /// Prints the mistakes and their tests instead.
        #[arg(long)]
        list: bool,
        /// Which ones; all where none are named.
        names: Vec<String>,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    let root = workspace_root();
    let outcome = match args.chore {
        Chore::Setup => setup::ensure(&root).map(|path| println!("{}", path.display())),
        Chore::Demo => chores::demo(&root),
        Chore::Test => chores::test(&root),
        Chore::Ci => chores::ci(&root),
        Chore::Fuzz { target, seconds } => fuzz::run(&root, target.as_deref(), seconds),
        Chore::Asan => sanitize::asan(&root),
        Chore::Valgrind => sanitize::valgrind(&root),
        Chore::Memory => memory::check(&root),
        Chore::Soak { requests } => chores::soak(&root, requests),
        Chore::Deps => deps::check(&root),
        Chore::Examples => examples::check(&root),
        Chore::Size => size::check(&root),
        Chore::Mistakes { list: true, .. } => {
            mistakes::list();
            Ok(())
        }
        Chore::Mistakes { names, .. } => mistakes::run(&root, &names),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(1)
        }
    }
}

/// The folder of the workspace manifest: two above this package.
fn workspace_root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package).to_path_buf()
}

/// What went wrong in a chore, as one message.
#[derive(Debug, thiserror::Error)]
enum ChoreError {
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A command could not be started or failed.
    #[error("{0}")]
    Command(String),
    /// A check found violations.
    #[error("{check} found {count} violation(s):\n{list}")]
    Violations {
        /// Which check.
        check: &'static str,
        /// How many.
        count: usize,
        /// One per line.
        list: String,
    },
    /// The ONNX Runtime library could not be set up.
    #[error("setup: {0}")]
    Setup(String),
}

impl ChoreError {
    fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self + '_ {
        move |source| Self::Io {
            path: path.to_path_buf(),
            source,
        }
    }

    /// `Ok` when there are none.
    fn unless_empty(check: &'static str, violations: &[String]) -> Result<(), Self> {
        if violations.is_empty() {
            println!("{check}: ok");
            return Ok(());
        }
        Err(Self::Violations {
            check,
            count: violations.len(),
            list: violations.join("\n"),
        })
    }
}
