//! Chores that are lists of commands.

use crate::{ChoreError, deps, setup, size};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Text that the shipped checkpoint continues in the demonstration.
const DEMO_PROMPT: &str = "def read_lines(path):\n    \"\"\"Return the lines of a file.\"\"\"\n";

/// Exports the shipped checkpoint and generates from it.
pub(crate) fn demo(root: &Path) -> Result<(), ChoreError> {
    setup::ensure(root)?;
    cargo(
        root,
        &[
            "build",
            "--release",
            "--package",
            "build-model",
            "--package",
            "pawl-cli",
        ],
    )?;
    let binaries = root.join("target").join("release");
    let output = root.join("demo").join("tiny-python");
    let parent = root.join("demo");
    std::fs::create_dir_all(&parent).map_err(ChoreError::io(&parent))?;
    let mut build = Command::new(binaries.join("build-model"));
    build
        .arg("--input")
        .arg(root.join("models/checkpoints/tiny-python"));
    build.arg("--output").arg(&output).arg("--force");
    run(&mut build)?;
    let mut generate = Command::new(binaries.join("pawl"));
    generate.arg("generate").arg("--model").arg(&output);
    generate.args(["--prompt", DEMO_PROMPT, "--max-new-tokens", "96"]);
    run(&mut generate)
}

/// Runs every test: the workspace's with nextest where it is installed, then the documentation's.
pub(crate) fn test(root: &Path) -> Result<(), ChoreError> {
    setup::ensure(root)?;
    if has_nextest(root) {
        cargo(root, &["nextest", "run", "--workspace", "--no-fail-fast"])?;
    } else {
        cargo(
            root,
            &["test", "--workspace", "--all-targets", "--no-fail-fast"],
        )?;
    }
    cargo(root, &["test", "--workspace", "--doc"])
}

/// Runs everything that a change must pass.
pub(crate) fn ci(root: &Path) -> Result<(), ChoreError> {
    let start = Instant::now();
    cargo(root, &["fmt", "--all", "--check"])?;
    deps::check(root)?;
    size::check(root)?;
    cargo(
        root,
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "--deny",
            "warnings",
        ],
    )?;
    cargo(root, &["check", "--package", "pawl", "--features", "cuda"])?;
    let mut docs = cargo_command(root, &["doc", "--workspace", "--no-deps"]);
    docs.env("RUSTDOCFLAGS", "--deny warnings");
    run(&mut docs)?;
    test(root)?;
    println!("ci: ok in {} s", start.elapsed().as_secs());
    Ok(())
}

fn has_nextest(root: &Path) -> bool {
    let mut probe = cargo_command(root, &["nextest", "--version"]);
    probe.output().is_ok_and(|output| output.status.success())
}

fn cargo(root: &Path, args: &[&str]) -> Result<(), ChoreError> {
    run(&mut cargo_command(root, args))
}

fn cargo_command(root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(args).current_dir(root);
    command
}

fn run(command: &mut Command) -> Result<(), ChoreError> {
    let line = describe(command);
    println!("$ {line}");
    let status = command
        .status()
        .map_err(|e| ChoreError::Command(format!("{line}: {e}")))?;
    if status.success() {
        return Ok(());
    }
    Err(ChoreError::Command(format!("{line}: {status}")))
}

/// The command as a person would type it, program path shortened to its name.
fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program
        .file_name()
        .unwrap_or(program.as_os_str())
        .to_string_lossy()
        .into_owned();
    let args = command
        .get_args()
        .map(|a| a.to_string_lossy().escape_debug().to_string());
    std::iter::once(name)
        .chain(args)
        .collect::<Vec<_>>()
        .join(" ")
}
