//! Making mistakes, one at a time.

use super::copy::Copy;
use super::{Mistake, Test, chosen};
use crate::{ChoreError, chores, setup};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long one test may run; a mistake that hangs it is not caught by an assertion.
const PATIENCE: Duration = Duration::from_secs(300);

/// Packages without a library or tests of these names: naming them builds nothing, but gives every dependency the features
/// that it has in the whole workspace, so that all binaries share one build of it.
const PROGRAMS: [&str; 3] = ["build-model", "pawl-cli", "xtask"];

/// What came of one mistake.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// The test failed, with this message.
    Caught(String),
    /// The test passed.
    Survived,
    /// There is no test to fail: the mistake does not compile, and this is the compiler's first complaint.
    NotCompiled(String),
    /// The test hung, ended the process, or did not run at all.
    NotJudged(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caught(message) => write!(f, "caught: {message}"),
            Self::Survived => f.write_str("SURVIVED: the test passes"),
            Self::NotCompiled(complaint) => write!(f, "DOES NOT COMPILE: {complaint}"),
            Self::NotJudged(reason) => write!(f, "NOT JUDGED: {reason}"),
        }
    }
}

/// Makes the mistakes with these names, or all.
///
/// # Errors
/// Texts that do not apply, tests that fail without a mistake, and mistakes that no test catches.
pub(crate) fn run(root: &Path, names: &[String]) -> Result<(), ChoreError> {
    let mistakes = chosen(names)?;
    let library = setup::ensure(root)?;
    let copy = Copy::of(root, &chores::target_folder(root)?)?;
    for mistake in &mistakes {
        mistake.apply(&copy.read(mistake.file)?)?;
    }
    let bench = Bench { copy, library };
    // One binary after the other, those that build quickest first: what one build leaves, the next can use.
    let mut binaries: BTreeMap<Binary, Vec<&Mistake>> = BTreeMap::new();
    for mistake in mistakes.iter().copied() {
        binaries
            .entry(Binary::of(mistake.test))
            .or_default()
            .push(mistake);
    }
    let (mut done, mut failures) = (0, Vec::new());
    for (binary, of) in binaries {
        bench.pass_without(binary, &of)?;
        for mistake in of {
            done += 1;
            let start = Instant::now();
            let verdict = bench.make(mistake)?;
            let (name, seconds) = (mistake.name, start.elapsed().as_secs());
            println!("[{done}/{}] {name} ({seconds} s) {verdict}", mistakes.len());
            if !matches!(verdict, Verdict::Caught(_)) {
                let test = mistake.test.name;
                failures.push(format!("{name}: {verdict} ({test})"));
            }
        }
    }
    ChoreError::unless_empty("mistakes", &failures)
}

/// A test binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Binary {
    package: &'static str,
    target: Option<&'static str>,
    /// How much the runtime is optimised. A build takes longer than most tests; only kernels need any.
    level: u8,
}

impl Binary {
    fn of(test: Test) -> Self {
        let Test {
            package,
            target,
            name,
        } = test;
        let computes = target.is_some() || name.starts_with("kernels::");
        Self {
            package,
            target,
            level: u8::from(computes),
        }
    }
}

/// The copy and what its tests need.
struct Bench {
    copy: Copy,
    library: PathBuf,
}

impl Bench {
    /// Every test of a binary that one of `mistakes` names passes without one.
    fn pass_without(&self, binary: Binary, mistakes: &[&Mistake]) -> Result<(), ChoreError> {
        let tests: BTreeSet<&str> = mistakes.iter().map(|m| m.test.name).collect();
        let built = self.build(binary)?.map_err(ChoreError::Command)?;
        for test in &tests {
            let verdict = self.judge(&built, test)?;
            if verdict != Verdict::Survived {
                let message = format!("without a mistake {test} does not pass: {verdict:?}");
                return Err(ChoreError::Command(message));
            }
        }
        let (count, package) = (tests.len(), binary.package);
        println!("{count} tests of {package} pass without a mistake");
        Ok(())
    }

    /// Makes one mistake, runs its test, and undoes it.
    fn make(&self, mistake: &Mistake) -> Result<Verdict, ChoreError> {
        let (text, file) = (self.copy.read(mistake.file)?, Path::new(mistake.file));
        self.copy.write(file, mistake.apply(&text)?.as_bytes())?;
        let verdict = match self.build(Binary::of(mistake.test)) {
            Ok(Ok(binary)) => self.judge(&binary, mistake.test.name),
            Ok(Err(complaint)) => Ok(Verdict::NotCompiled(complaint)),
            Err(error) => Err(error),
        };
        self.copy.write(file, text.as_bytes())?;
        verdict
    }

    /// Builds the tests of a package: the binary, or the compiler's first complaint.
    fn build(&self, of: Binary) -> Result<Result<PathBuf, String>, ChoreError> {
        let mut command = Command::new("cargo");
        command
            .current_dir(&self.copy.tree)
            .env("CARGO_TARGET_DIR", &self.copy.target)
            .args(["test", "--no-run", "--package", of.package])
            .args(PROGRAMS.iter().flat_map(|name| ["--package", name]))
            .args(["--message-format", "json-render-diagnostics"])
            .args(["--config", "profile.dev.package.pawl.debug=false"])
            .arg("--config")
            .arg(format!("profile.dev.package.pawl.opt-level={}", of.level));
        match of.target {
            Some(name) => command.args(["--test", name]),
            None => command.arg("--lib"),
        };
        let built = finish(command, None)?;
        let binary = || built.stdout.lines().filter_map(executable).next_back();
        if let Some(binary) = built.success.then(binary).flatten() {
            return Ok(Ok(binary));
        }
        let complaint = built.stderr.lines().find(|line| line.starts_with("error"));
        Ok(Err(complaint.unwrap_or("it does not build").to_owned()))
    }

    fn judge(&self, binary: &Path, test: &str) -> Result<Verdict, ChoreError> {
        let mut command = Command::new(binary);
        command
            .current_dir(&self.copy.tree)
            .env("ORT_DYLIB_PATH", &self.library)
            // That it fails is enough: no smaller example is looked for, nor remembered for the next mistake.
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true")
            .args(["--exact", test]);
        Ok(verdict(test, &finish(command, Some(PATIENCE))?))
    }
}

/// The test binary that a line of cargo's messages names.
fn executable(line: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let of_test = message.pointer("/profile/test")?.as_bool()?;
    let path = message.get("executable")?.as_str()?;
    of_test.then(|| PathBuf::from(path))
}

/// What a command left behind.
#[derive(Debug)]
struct Finished {
    success: bool,
    stdout: String,
    stderr: String,
    timed_out: bool,
}

fn verdict(test: &str, ran: &Finished) -> Verdict {
    if ran.timed_out {
        return Verdict::NotJudged(format!("{test} hangs"));
    }
    if ran.stdout.contains(&format!("test {test} ... FAILED")) {
        // The test's own output, its panic included, is captured and printed with the summary.
        let mut lines = ran.stdout.lines();
        let panic = lines.find(|line| line.contains(" panicked at "));
        let message = panic.and_then(|_| lines.next()).unwrap_or_default();
        return Verdict::Caught(message.chars().take(120).collect());
    }
    if ran.success && ran.stdout.contains(&format!("test {test} ... ok")) {
        return Verdict::Survived;
    }
    let last = ran.stderr.lines().next_back().unwrap_or_default();
    Verdict::NotJudged(format!("{test} neither passed nor failed: {last}"))
}

/// Runs a command to its end, or until patience does.
fn finish(mut command: Command, patience: Option<Duration>) -> Result<Finished, ChoreError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |e: std::io::Error| ChoreError::Command(format!("{name}: {e}"));
    // Files, as nobody reads while the command runs.
    let (mut out, mut err) = (
        tempfile::tempfile().map_err(failed)?,
        tempfile::tempfile().map_err(failed)?,
    );
    let mut child = command
        .stdin(Stdio::null())
        .stdout(out.try_clone().map_err(failed)?)
        .stderr(err.try_clone().map_err(failed)?)
        .spawn()
        .map_err(failed)?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break Some(status);
        }
        if patience.is_some_and(|patience| start.elapsed() > patience) {
            child.kill().map_err(failed)?;
            child.wait().map_err(failed)?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    Ok(Finished {
        success: status.is_some_and(|status| status.success()),
        stdout: read_back(&mut out).map_err(failed)?,
        stderr: read_back(&mut err).map_err(failed)?,
        timed_out: status.is_none(),
    })
}

fn read_back(file: &mut File) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_assertion_catches() {
        let ran = |success, stdout: &str, timed_out| {
            let (stdout, stderr) = (stdout.to_owned(), "SIGABRT".to_owned());
            let ran = Finished {
                success,
                stdout,
                stderr,
                timed_out,
            };
            verdict("a::b", &ran)
        };
        let failed = "test a::b ... FAILED\nthread 'a::b' (7) panicked at x.rs:1:1:\nleft, right\n";
        let caught = Verdict::Caught("left, right".to_owned());
        assert_eq!(ran(false, failed, false), caught);
        assert_eq!(ran(true, "test a::b ... ok\n", false), Verdict::Survived);
        for (success, text, timed_out) in [
            (false, "running 1 test", false),
            (true, "running 0 tests", false),
            (false, "", true),
        ] {
            let verdict = ran(success, text, timed_out);
            assert!(
                matches!(verdict, Verdict::NotJudged(_)),
                "{text}: {verdict:?}"
            );
        }
    }

    #[test]
    fn the_binary_is_the_one_of_the_tests() {
        let line = r#"{"profile":{"test":true},"executable":"/t/pawl-1"}"#;
        assert_eq!(executable(line), Some(PathBuf::from("/t/pawl-1")));
        assert_eq!(executable(&line.replace("true", "false")), None);
        assert_eq!(executable("Compiling pawl"), None);
    }

    #[test]
    #[cfg(unix)]
    fn a_command_that_hangs_is_ended() {
        let mut command = Command::new("sleep");
        command.arg("60");
        let ran = finish(command, Some(Duration::ZERO)).unwrap();
        assert!(ran.timed_out && !ran.success);
    }
}
