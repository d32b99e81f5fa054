//! Chores that are lists of commands.

use crate::{ChoreError, deps, examples, fuzz, setup, size};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Text that the shipped checkpoint continues in the demonstration.
const DEMO_PROMPT: &str = "def read_lines(path):\n    \"\"\"Return the lines of a file.\"\"\"\n";

/// Seconds for each fuzz target in continuous integration.
const FUZZ_SECONDS: u32 = 20;

/// Exports the shipped checkpoint and generates from it, without drafts and with them.
pub(crate) fn demo(root: &Path) -> Result<(), ChoreError> {
    demo_with(root, "release")
}

fn demo_with(root: &Path, profile: &str) -> Result<(), ChoreError> {
    let library = setup::ensure(root)?;
    let build = [
        "build",
        "--profile",
        profile,
        "--package",
        "build-model",
        "--package",
        "pawl-cli",
    ];
    cargo(root, &build)?;
    let folder = if profile == "dev" { "debug" } else { profile };
    let binaries = target_folder(root)?.join(folder);
    let tool = |name: &str| {
        let mut command = Command::new(binaries.join(name));
        command.current_dir(root).env("ORT_DYLIB_PATH", &library);
        command
    };
    let output = root.join("demo").join("tiny-python");
    let parent = root.join("demo");
    std::fs::create_dir_all(&parent).map_err(ChoreError::io(&parent))?;
    let input = [
        "--input",
        "models/checkpoints/tiny-python",
        "--force",
        "--output",
    ];
    run(tool("build-model").args(input).arg(&output))?;
    let prompt = ["--prompt", DEMO_PROMPT, "--max-new-tokens", "96"];
    for speculation in ["off", "mtp"] {
        let mut generate = tool("pawl");
        generate
            .args(["generate", "--speculation", speculation, "--model"])
            .arg(&output);
        run(generate.args(prompt))?;
    }
    Ok(())
}

/// Runs every test: the workspace's with nextest where it is installed, then the documentation's. The programs are built
/// first: tests that start them look at cargo's list of what they are made of, which building tests does not write.
pub(crate) fn test(root: &Path) -> Result<(), ChoreError> {
    let library = setup::ensure(root)?;
    let with_library = |args: &[&str]| {
        let mut command = cargo_command(root, args);
        command.env("ORT_DYLIB_PATH", &library);
        command
    };
    run(&mut with_library(&["build", "--bins", "--workspace"]))?;
    if has_nextest(root) {
        run(&mut with_library(&[
            "nextest",
            "run",
            "--workspace",
            "--no-fail-fast",
        ]))?;
    } else {
        let all = ["test", "--workspace", "--all-targets", "--no-fail-fast"];
        run(&mut with_library(&all))?;
    }
    run(&mut with_library(&["test", "--workspace", "--doc"]))
}

/// Where cargo puts what it builds: `CARGO_TARGET_DIR` and configuration files move it.
pub(crate) fn target_folder(root: &Path) -> Result<PathBuf, ChoreError> {
    let metadata = deps::metadata(root)?;
    let folder = metadata
        .get("target_directory")
        .and_then(serde_json::Value::as_str);
    folder
        .map(PathBuf::from)
        .ok_or_else(|| ChoreError::Command("cargo metadata names no target folder".to_owned()))
}

/// Runs everything that a change must pass.
pub(crate) fn ci(root: &Path) -> Result<(), ChoreError> {
    let start = Instant::now();
    cargo(root, &["fmt", "--all", "--check"])?;
    deps::check(root)?;
    size::check(root)?;
    examples::check(root)?;
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
    demo_with(root, "dev")?;
    test(root)?;
    fuzz::run(root, None, FUZZ_SECONDS)?;
    println!("ci: ok in {} s", start.elapsed().as_secs());
    Ok(())
}

/// A long run of requests, after which nothing may be left over.
pub(crate) fn soak(root: &Path, requests: u32) -> Result<(), ChoreError> {
    let library = setup::ensure(root)?;
    // The runtime is optimised in every profile; here its assertions are on.
    let program = ["run", "--package", "pawl-tests", "--bin", "soak"];
    let mut soak = cargo_command(root, &program);
    soak.args(["--", &requests.to_string()])
        .env("ORT_DYLIB_PATH", &library);
    run(&mut soak)
}

/// The platform that the toolchain builds for by default.
pub(crate) fn host() -> Result<String, ChoreError> {
    let version = output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| ChoreError::Command("rustc -vV names no host".to_owned()))
}

/// What a command prints.
pub(crate) fn output(command: &mut Command) -> Result<String, ChoreError> {
    let line = describe(command);
    let failed = |what: &dyn std::fmt::Display| ChoreError::Command(format!("{line}: {what}"));
    let output = command.output().map_err(|error| failed(&error))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(failed(&String::from_utf8_lossy(&output.stderr))),
    }
}

fn has_nextest(root: &Path) -> bool {
    let mut probe = cargo_command(root, &["nextest", "--version"]);
    probe.output().is_ok_and(|output| output.status.success())
}

fn cargo(root: &Path, args: &[&str]) -> Result<(), ChoreError> {
    run(&mut cargo_command(root, args))
}

pub(crate) fn cargo_command(root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(args).current_dir(root);
    command
}

pub(crate) fn run(command: &mut Command) -> Result<(), ChoreError> {
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
pub(crate) fn describe(command: &Command) -> String {
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
