//! `cargo xtask asan` and `cargo xtask valgrind`: the unsafe code under tools that watch memory.
//!
//! Both begin with a planted bug, a test that reads past a buffer, and fail unless the tool reports it.
//!
//! The address sanitizer is an unstable flag of the compiler. The stable toolchain comes with all it needs, so the flag is
//! unlocked for this one build; a toolchain without the sanitizer's library is told so. ONNX Runtime is a library that was
//! built without it: its allocations are watched, what it does inside is not.
//!
//! Valgrind watches that too, some fifty times slower, and knows no AVX-512: the kernels then choose narrower instructions.
//! It runs the tests of the package `pawl` only. `tests/valgrind.supp`, where there is one, says what is known and why.

use crate::{ChoreError, chores, setup};
use std::path::Path;
use std::process::Command;

/// Tests of the package `pawl`: kernels, pools, transactions, and what owns memory.
const UNITS: [&str; 6] = [
    "kernels::",
    "kv::",
    "state::",
    "txn::",
    "exec::",
    "engine::",
];
/// Tests of engines.
const CASES: [&str; 6] = [
    "serving",
    "kept",
    "speculation",
    "independence",
    "branches",
    "commit_graphs",
];
/// The planted bug.
const CANARY: [&str; 4] = [
    "--ignored",
    "--exact",
    "--test-threads=1",
    "kernels::canary::reads_past_the_end",
];

/// Kernels, pools, transactions and engines under the address sanitizer.
pub(crate) fn asan(root: &Path) -> Result<(), ChoreError> {
    require_asan(root)?;
    let library = setup::ensure(root)?;
    let (triple, target) = (chores::host()?, chores::target_folder(root)?);
    let test = |package: &str, args: &[&str]| {
        let mut test = chores::cargo_command(root, &["test", "--package", package]);
        test.args(["--profile", "watched", "--target", &triple])
            .args(args)
            .env("ORT_DYLIB_PATH", &library)
            .env("CARGO_TARGET_DIR", target.join("asan"))
            .env("CARGO_ENCODED_RUSTFLAGS", "-Zsanitizer=address")
            .env("RUSTC_BOOTSTRAP", "1")
            .env(
                "ASAN_OPTIONS",
                "allow_addr2line=1:detect_stack_use_after_return=1",
            );
        test
    };
    let canary = [&["--lib", "--"], &CANARY[..]].concat();
    must_find(
        &mut test("pawl", &canary),
        "AddressSanitizer: heap-buffer-overflow",
    )?;
    require_tests(&mut test("pawl", &["--lib", "--", "--list"]))?;
    chores::run(&mut test("pawl", &[&["--lib", "--"], &UNITS[..]].concat()))?;
    for case in CASES {
        let mut list = test("pawl-tests", &["--test", case, "--", "--list"]);
        if names(&chores::output(&mut list)?).next().is_none() {
            return Err(ChoreError::Command(format!("{case} has no test")));
        }
    }
    let cases = CASES.map(|case| ["--test", case]);
    chores::run(&mut test("pawl-tests", cases.as_flattened()))
}

/// A filter that matches nothing succeeds, so each of [`UNITS`] must match a test of those that `list` lists.
fn require_tests(list: &mut Command) -> Result<(), ChoreError> {
    let listed = chores::output(list)?;
    let unmatched = unmatched(&listed, &UNITS);
    if unmatched.is_empty() {
        return Ok(());
    }
    let message = format!("no test has a name with {}", unmatched.join(" or "));
    Err(ChoreError::Command(message))
}

/// The filters that match none of the listed tests.
fn unmatched<'f>(listed: &str, filters: &[&'f str]) -> Vec<&'f str> {
    let filters = filters.iter().copied();
    filters
        .filter(|filter| !names(listed).any(|name| name.contains(filter)))
        .collect()
}

/// The tests that a test program lists.
fn names(listed: &str) -> impl Iterator<Item = &str> {
    listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
}

/// Refuses a toolchain without the sanitizer.
fn require_asan(root: &Path) -> Result<(), ChoreError> {
    // Nothing is written: a compiler that may would put its file in the place of a device that it is told to write to.
    let empty = "-Zsanitizer=address --crate-type lib --print crate-name -";
    let mut probe = Command::new("rustc");
    probe
        .args(empty.split(' '))
        .current_dir(root)
        .stdin(std::process::Stdio::null())
        .env("RUSTC_BOOTSTRAP", "1");
    let sysroot = chores::output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let folder = Path::new(sysroot.trim())
        .join("lib/rustlib")
        .join(chores::host()?)
        .join("lib");
    let entries = std::fs::read_dir(&folder).map_err(ChoreError::io(&folder))?;
    let has_library = entries
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().contains("rt.asan"));
    if has_library && chores::output(&mut probe).is_ok() {
        return Ok(());
    }
    let message = format!(
        "this toolchain has no address sanitizer ({}); rustup's toolchains for x86_64 and aarch64 Linux have it",
        folder.display()
    );
    Err(ChoreError::Command(message))
}

/// Kernels, pools and transactions under valgrind.
pub(crate) fn valgrind(root: &Path) -> Result<(), ChoreError> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        let message = "valgrind is not installed; Linux distributions have it as `valgrind`";
        return Err(ChoreError::Command(message.to_owned()));
    }
    let library = setup::ensure(root)?;
    let mut runner =
        "valgrind --quiet --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite \
        --show-leak-kinds=definite --fair-sched=yes"
            .to_owned();
    let known = root.join("tests/valgrind.supp");
    if known.is_file() {
        runner.push_str(&format!(" --suppressions={}", known.display()));
    }
    let triple = chores::host()?.replace('-', "_").to_uppercase();
    let test = |args: &[&str]| {
        let mut test = chores::cargo_command(root, &["test", "--package", "pawl", "--lib", "--"]);
        test.args(args)
            .env("ORT_DYLIB_PATH", &library)
            // Random cases are as good as any other, and here each takes long.
            .env("PROPTEST_CASES", "4")
            .env(format!("CARGO_TARGET_{triple}_RUNNER"), &runner);
        test
    };
    must_find(&mut test(&CANARY), "Invalid read of size 4")?;
    require_tests(test(&["--list"]).env_remove(format!("CARGO_TARGET_{triple}_RUNNER")))?;
    chores::run(&mut test(&UNITS))
}

/// Runs the planted bug, which must be found.
fn must_find(command: &mut Command, report: &str) -> Result<(), ChoreError> {
    let line = chores::describe(command);
    println!("$ {line}");
    let output = command
        .output()
        .map_err(|error| ChoreError::Command(format!("{line}: {error}")))?;
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let text = text.concat();
    if !output.status.success() && text.contains(report) {
        println!("the planted bug is found: {report}");
        return Ok(());
    }
    Err(ChoreError::Command(format!(
        "the planted bug was not found:\n{text}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_that_match_no_test_are_told() {
        let listed =
            "kernels::a::b: test\nkv::block: test\nkvs: benchmark\n\n2 tests, 1 benchmark\n";
        assert_eq!(unmatched(listed, &["kernels::", "kv::"]), [""; 0]);
        assert_eq!(
            unmatched(listed, &["txn::", "kv::", "kvs"]),
            ["txn::", "kvs"]
        );
        assert_eq!(unmatched("0 tests, 0 benchmarks\n", &["kv::"]), ["kv::"]);
        assert_eq!(names(listed).count(), 2);
    }
}
