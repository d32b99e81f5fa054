//! Making mistakes, one at a time.

use super::copy::Copy;
use super::together::{self, Function};
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
    let report = make(&Bench::new(copy, library, &mistakes)?, &mistakes)?;
    ChoreError::unless_empty("mistakes", &report.failures)
}

/// Makes each mistake; ends early where something fails without one.
fn make(bench: &Bench, mistakes: &[&'static Mistake]) -> Result<Report, ChoreError> {
    for mistake in mistakes {
        mistake.apply(bench.plain(mistake))?;
    }
    let mut packages: BTreeMap<&str, Vec<&'static Mistake>> = BTreeMap::new();
    for mistake in mistakes.iter().copied() {
        let of = packages.entry(mistake.test.package).or_default();
        of.push(mistake);
    }
    let mut report = Report::of(mistakes.len());
    for of in packages.into_values() {
        let (built, together) = bench.together(&of)?;
        bench.pass_without(&built, &of)?;
        for mistake in &together {
            let start = Instant::now();
            let verdict = bench.judge(&built, mistake.test, Some(mistake))?;
            report.tell(mistake, start, &verdict);
        }
        bench.write_plain(&of)?;
        for mistake in of {
            if together.iter().all(|other| other.name != mistake.name) {
                let start = Instant::now();
                let verdict = bench.alone(mistake)?;
                report.tell(mistake, start, &verdict);
            }
        }
    }
    Ok(report)
}

/// What is told of every mistake.
struct Report {
    all: usize,
    told: usize,
    failures: Vec<String>,
}

impl Report {
    fn of(all: usize) -> Self {
        Self {
            all,
            told: 0,
            failures: Vec::new(),
        }
    }

    fn tell(&mut self, mistake: &Mistake, start: Instant, verdict: &Verdict) {
        self.told += 1;
        let (name, seconds) = (mistake.name, start.elapsed().as_secs());
        println!(
            "[{}/{}] {name} ({seconds} s) {verdict}",
            self.told, self.all
        );
        if !matches!(verdict, Verdict::Caught(_)) {
            let test = mistake.test.name;
            self.failures.push(format!("{name}: {verdict} ({test})"));
        }
    }
}

/// The copy and what its tests need.
struct Bench {
    copy: Copy,
    library: PathBuf,
    /// Every file that a mistake is made in, without one.
    plain: BTreeMap<&'static str, String>,
}

/// Test binaries by the names of their targets.
type Binaries = BTreeMap<String, PathBuf>;

/// An error of the compiler.
#[derive(Debug)]
struct Complaint {
    /// Files and lines that it points to.
    places: Vec<(String, usize)>,
    message: String,
}

impl Bench {
    fn new(copy: Copy, library: PathBuf, mistakes: &[&Mistake]) -> Result<Self, ChoreError> {
        let texts = mistakes
            .iter()
            .map(|mistake| Ok((mistake.file, copy.read(mistake.file)?)));
        let plain = texts.collect::<Result<_, ChoreError>>()?;
        Ok(Self {
            copy,
            library,
            plain,
        })
    }

    /// The file of a mistake, without one.
    fn plain(&self, mistake: &Mistake) -> &str {
        self.plain.get(mistake.file).map_or("", String::as_str)
    }

    /// Builds as many mistakes as can be together: all but those that change more than the body of a function, and
    /// those that the compiler complains of.
    fn together(
        &self,
        mistakes: &[&'static Mistake],
    ) -> Result<(Binaries, Vec<&'static Mistake>), ChoreError> {
        let tests: BTreeSet<Test> = mistakes.iter().map(|mistake| mistake.test).collect();
        let mut able = mistakes.to_vec();
        loop {
            let functions = self.write_together(mistakes, &able)?;
            let complaints = match self.build(&tests)? {
                Ok(built) => {
                    let together = functions.into_iter().flat_map(|(_, of)| of.mistakes);
                    return Ok((built, together.collect()));
                }
                Err(complaints) => complaints,
            };
            if functions.is_empty() {
                let messages: Vec<_> = complaints.iter().map(|c| c.message.as_str()).collect();
                return Err(ChoreError::Command(messages.join("; ")));
            }
            let at_fault = |(file, of): &&(&str, Function)| {
                let mut places = complaints.iter().flat_map(|c| &c.places);
                places.any(|(other, line)| other == file && of.lines.contains(line))
            };
            let found = functions.iter().filter(at_fault);
            let names: BTreeSet<&str> = found
                .flat_map(|(_, of)| of.mistakes.iter().map(|mistake| mistake.name))
                .collect();
            // A complaint of no function in particular: nothing is built together.
            able.retain(|mistake| !names.is_empty() && !names.contains(mistake.name));
        }
    }

    /// Writes the files of `mistakes` with those of them that are `able` to be together.
    fn write_together(
        &self,
        mistakes: &[&'static Mistake],
        able: &[&'static Mistake],
    ) -> Result<Vec<(&'static str, Function)>, ChoreError> {
        let mut functions = Vec::new();
        for file in mistakes.iter().map(|m| m.file).collect::<BTreeSet<_>>() {
            let of: Vec<_> = able.iter().copied().filter(|m| m.file == file).collect();
            let plain = self.plain.get(file).map_or("", String::as_str);
            let (text, found) = together::combine(plain, &of);
            self.copy.write(Path::new(file), text.as_bytes())?;
            functions.extend(found.into_iter().map(|function| (file, function)));
        }
        Ok(functions)
    }

    /// Undoes every mistake of these files.
    fn write_plain(&self, mistakes: &[&'static Mistake]) -> Result<(), ChoreError> {
        self.write_together(mistakes, &[]).map(drop)
    }

    /// Every test that one of `mistakes` names passes without one.
    fn pass_without(&self, built: &Binaries, mistakes: &[&Mistake]) -> Result<(), ChoreError> {
        let tests: BTreeSet<Test> = mistakes.iter().map(|m| m.test).collect();
        for test in &tests {
            let verdict = self.judge(built, *test, None)?;
            if verdict != Verdict::Survived {
                let test = test.name;
                let message = format!("without a mistake {test} does not pass: {verdict:?}");
                return Err(ChoreError::Command(message));
            }
        }
        println!("{} tests pass without a mistake", tests.len());
        Ok(())
    }

    /// Builds one mistake, runs its test, and undoes it.
    fn alone(&self, mistake: &'static Mistake) -> Result<Verdict, ChoreError> {
        let text = mistake.apply(self.plain(mistake))?;
        self.copy.write(Path::new(mistake.file), text.as_bytes())?;
        let verdict = match self.build(&BTreeSet::from([mistake.test])) {
            Ok(Ok(built)) => self.judge(&built, mistake.test, None),
            Ok(Err(complaints)) => {
                let first = complaints.into_iter().next();
                Ok(Verdict::NotCompiled(
                    first.map(|c| c.message).unwrap_or_default(),
                ))
            }
            Err(error) => Err(error),
        };
        self.write_plain(&[mistake])?;
        verdict
    }

    /// Builds what these tests are in, all of one package: the binaries, or what the compiler says against them.
    fn build(
        &self,
        tests: &BTreeSet<Test>,
    ) -> Result<Result<Binaries, Vec<Complaint>>, ChoreError> {
        let packages: BTreeSet<&str> = tests.iter().map(|test| test.package).collect();
        let targets: BTreeSet<_> = tests.iter().map(|test| test.target).collect();
        // How much the runtime is optimised. A build takes longer than most tests; only whole models need any.
        let level = u8::from(targets.iter().any(Option::is_some));
        let mut command = Command::new("cargo");
        command
            .current_dir(&self.copy.tree)
            .env("CARGO_TARGET_DIR", &self.copy.target)
            .args(["test", "--no-run", "--message-format", "json"])
            .args(
                packages
                    .iter()
                    .chain(&PROGRAMS)
                    .flat_map(|name| ["--package", name]),
            )
            .args(["--config", "profile.dev.package.pawl.debug=false"])
            .arg("--config")
            .arg(format!("profile.dev.package.pawl.opt-level={level}"));
        for target in targets {
            match target {
                Some(name) => command.args(["--test", name]),
                None => command.arg("--lib"),
            };
        }
        let built = finish(command, None)?;
        if built.success {
            return Ok(Ok(built.stdout.lines().filter_map(executable).collect()));
        }
        let complaints: Vec<_> = built.stdout.lines().filter_map(complaint).collect();
        if complaints.is_empty() {
            let message = format!("it does not build: {}", built.stderr.trim());
            return Err(ChoreError::Command(message));
        }
        Ok(Err(complaints))
    }

    /// Runs one test, of a process that makes one mistake or none.
    fn judge(
        &self,
        built: &Binaries,
        test: Test,
        mistake: Option<&Mistake>,
    ) -> Result<Verdict, ChoreError> {
        let target = test.target.unwrap_or(test.package);
        let Some(binary) = built.get(target) else {
            return Ok(Verdict::NotJudged(format!("no binary {target} was built")));
        };
        let mut command = Command::new(binary);
        command
            .current_dir(&self.copy.tree)
            .env("ORT_DYLIB_PATH", &self.library)
            .env(
                together::VARIABLE,
                mistake.map_or("", |mistake| mistake.name),
            )
            // That it fails is enough: no smaller example is looked for, nor remembered for the next mistake.
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true")
            .args(["--exact", test.name]);
        Ok(verdict(test.name, &finish(command, Some(PATIENCE))?))
    }
}

/// The test binary that a line of cargo's messages names, and its target.
fn executable(line: &str) -> Option<(String, PathBuf)> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let of_test = message.pointer("/profile/test")?.as_bool()?;
    let target = message.pointer("/target/name")?.as_str()?;
    let path = message.get("executable")?.as_str()?;
    of_test.then(|| (target.to_owned(), PathBuf::from(path)))
}

/// The error of the compiler that a line of cargo's messages tells.
fn complaint(line: &str) -> Option<Complaint> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let message = message.get("message")?;
    if message.get("level")?.as_str()? != "error" {
        return None;
    }
    let place = |span: &serde_json::Value| {
        let file = span.get("file_name")?.as_str()?.to_owned();
        let line = usize::try_from(span.get("line_start")?.as_u64()?).ok()?;
        Some((file, line))
    };
    let spans = message.get("spans")?.as_array()?;
    Some(Complaint {
        places: spans.iter().filter_map(place).collect(),
        message: message.get("message")?.as_str()?.to_owned(),
    })
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
#[path = "run_tests.rs"]
mod tests;
