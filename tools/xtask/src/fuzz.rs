//! `cargo xtask fuzz`: the targets of `tests/fuzz` under libFuzzer.
//!
//! The stable compiler can insert libFuzzer's coverage counters by flags that it passes on to LLVM, so no other toolchain
//! is needed; a C++ compiler is, for libFuzzer itself. The flags change every crate, hence a target folder of its own.
//! Panics, inputs that take too long and inputs that take too much memory are findings. Memory errors are looked for by
//! `cargo xtask asan`.

use crate::{ChoreError, chores};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The targets, which are the programs of the package `pawl-fuzz` and the folders of its corpus.
const TARGETS: [&str; 7] = [
    "safetensors_header",
    "hugging_face_config",
    "genai_config",
    "chat_template",
    "step_script",
    "onnx_graph",
    "saved_state",
];

/// Coverage as libFuzzer reads it: edges with counters, and what comparisons compare.
const FLAGS: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// Seconds that one input may take, and MiB that the process may take: far beyond what any input of `MOST_BYTES` needs.
const LIMITS: [&str; 2] = ["-timeout=20", "-rss_limit_mb=1024"];
/// Longest input.
const MOST_BYTES: &str = "-max_len=8192";

/// Runs one target, or all of them in turn, for so many seconds each.
pub(crate) fn run(root: &Path, target: Option<&str>, seconds: u32) -> Result<(), ChoreError> {
    let chosen: Vec<&str> = match target {
        None => TARGETS.to_vec(),
        Some(name) => TARGETS.into_iter().filter(|known| *known == name).collect(),
    };
    if chosen.is_empty() {
        let message = format!("no such target; there are {}", TARGETS.join(", "));
        return Err(ChoreError::Command(message));
    }
    let folder = build(root, &chosen)?;
    for target in chosen {
        fuzz(root, &folder, target, seconds)?;
    }
    Ok(())
}

/// Builds the programs. Returns the folder they are in.
fn build(root: &Path, targets: &[&str]) -> Result<PathBuf, ChoreError> {
    let triple = chores::host()?;
    let folder = chores::target_folder(root)?.join("fuzz");
    let mut build = chores::cargo_command(
        root,
        &["build", "--profile", "watched", "--package", "pawl-fuzz"],
    );
    // With a target named, build scripts and procedural macros are spared the flags.
    build.args(["--features", "libfuzzer", "--target", &triple]);
    for target in targets {
        build.args(["--bin", target]);
    }
    build
        .env("CARGO_TARGET_DIR", &folder)
        .env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\u{1f}"));
    chores::run(&mut build)?;
    Ok(folder.join(triple).join("watched"))
}

fn fuzz(root: &Path, programs: &Path, target: &str, seconds: u32) -> Result<(), ChoreError> {
    let made = |folder: PathBuf| -> Result<PathBuf, ChoreError> {
        std::fs::create_dir_all(&folder).map_err(ChoreError::io(&folder))?;
        Ok(folder)
    };
    let work = chores::target_folder(root)?.join("fuzz");
    // libFuzzer adds to the first folder; the committed one stays small.
    let found = made(work.join("corpus").join(target))?;
    let findings = made(work.join("findings").join(target))?;
    let mut prefix = findings.clone().into_os_string();
    prefix.push("/");
    let mut artifacts = std::ffi::OsString::from("-artifact_prefix=");
    artifacts.push(prefix);
    let mut run = Command::new(programs.join(target));
    run.current_dir(root)
        .arg(format!("-max_total_time={seconds}"))
        .args(LIMITS)
        .args([MOST_BYTES, "-print_final_stats=1", "-verbosity=0"])
        .arg(artifacts)
        .arg(found)
        .arg(root.join("tests/fuzz/corpus").join(target));
    chores::run(&mut run).map_err(|error| {
        let add = format!("tests/fuzz/corpus/{target}");
        ChoreError::Command(format!(
            "{error}\nthe input is in {}; it goes to {add} with the repair",
            findings.display()
        ))
    })
}
