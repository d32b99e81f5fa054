//! Runs cases as processes, within bounds, and says what is wrong with each.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::case::{BYTE, Case, HERE, Output};
use super::library;

/// Cases that run at once.
const WORKERS: usize = 2;
/// Resident memory of a process. Tables and weights of the cases are small; ONNX Runtime itself takes 100 MB.
const MOST_MEMORY: u64 = 700 << 20;
/// Address space of a process: what keeps a case that goes wrong from taking the machine.
const ADDRESS_SPACE: u64 = 6 << 30;
/// Processor seconds of a process; hangs that wait are ended by the clock.
const MOST_SECONDS: u64 = 20;
const CLOCK: Duration = Duration::from_secs(60);
/// Time from which a case is mentioned.
const SLOW: Duration = Duration::from_secs(3);
/// Bytes that a process may say of what is wrong: a list of many errors in short lines.
const MOST_SAID: usize = 256 << 10;
/// What a process prints that ended otherwise than it meant to.
const PANICS: [&str; 5] = [
    "panicked at",
    "overflowed its stack",
    "RUST_BACKTRACE",
    "fatal runtime error",
    "memory allocation of",
];

/// What is wrong, one entry per case.
pub(crate) fn all(cases: &[Case]) -> Vec<String> {
    let (next, wrong) = (Mutex::new(cases.iter()), Mutex::new(Vec::new()));
    let work = || {
        while let Some(case) = { next.lock().unwrap().next() } {
            if let Err(problem) = one(case) {
                let entry = format!("- {}: {problem}", case.name);
                wrong.lock().unwrap().push(entry);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(work);
        }
    });
    wrong.into_inner().unwrap()
}

fn one(case: &Case) -> Result<(), String> {
    let (world, temporary) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    (case.make)(world.path());
    let before = snapshot(world.path());
    let start = Instant::now();
    let done = run(case, world.path(), temporary.path());
    if start.elapsed() > SLOW {
        println!("{}: {:.1} s", case.name, start.elapsed().as_secs_f32());
    }
    let shown = format!(
        "exit {:?}, signal {:?}, {} MB, stderr: {:.600}",
        done.status.code(),
        done.status.signal(),
        done.memory >> 20,
        done.stderr
    );
    let require = |holds: bool, what: &str| match holds {
        true => Ok(()),
        false => Err(format!("{what}; {shown}")),
    };
    require(!done.late, "it did not end in time")?;
    require(
        done.status.code() == Some(case.code),
        &format!("the exit code is not {}", case.code),
    )?;
    let all = [done.stdout.as_str(), done.stderr.as_str()].concat();
    require(
        !PANICS.iter().any(|panic| all.contains(panic)),
        "it panicked",
    )?;
    for word in &case.words {
        let word = here(word, world.path());
        require(all.contains(&word), &format!("`{word}` is not said"))?;
    }
    let longest = case.longest.unwrap_or(MOST_SAID);
    require(done.stderr.len() <= longest, "it says too much")?;
    if case.code == 2 && case.output != Output::ErrorsFull {
        require(done.stderr.contains("error: "), "no error is said")?;
        let expected = done.stdout.is_empty() != case.late;
        require(expected, "standard output is not as it should be")?;
    }
    require(done.memory <= MOST_MEMORY, "it took too much memory")?;
    if case.code == 0 {
        require(!done.stderr.contains("error: "), "an error is said")?;
        answered(case, &done.stdout, world.path()).or_else(|what| require(false, &what))?;
    }
    let written = case.writes.map(|name| world.path().join(bytes(name)));
    let after = snapshot(world.path());
    let differs = before.iter().chain(&after).find(|(path, entry)| {
        let allowed = (written.as_ref()).is_some_and(|written| path.starts_with(written));
        !allowed && (before.get(*path) != Some(*entry) || after.get(*path) != Some(*entry))
    });
    let differs = differs.map(|(path, _)| format!("`{}` changed", path.display()));
    require(differs.is_none(), &differs.unwrap_or_default())?;
    if case.error.is_some() {
        let found = library::code(case, world.path());
        let other = format!("the library says {found:?}, not {:?}", case.error);
        require(found == case.error, &other)?;
    }
    let left = fs::read_dir(temporary.path()).unwrap().count();
    require(left == 0, "temporary files are left")
}

/// What a success must show: a whole model and nothing beside it, or an answer per prompt.
fn answered(case: &Case, stdout: &str, world: &Path) -> Result<(), String> {
    if case.tool == "build-model"
        && let Some(written) = case.writes
    {
        return whole_model(&world.join(bytes(written)));
    }
    let has = |option: &str| case.args.iter().any(|arg| arg == option);
    if case.args.first().is_none_or(|arg| arg != "generate") || case.output != Output::Read {
        return Ok(());
    }
    let prompts = case
        .args
        .iter()
        .filter(|arg| *arg == "--ids" || *arg == "--prompt")
        .count();
    if !has("--json") {
        return match stdout.is_empty() {
            true => Err("nothing is generated".to_owned()),
            false => Ok(()),
        };
    }
    let lines: Vec<&str> = stdout.lines().collect();
    let tokens = |line: &&str| {
        let answer: serde_json::Value = serde_json::from_str(line).ok()?;
        answer["tokens"].as_array().map(Vec::len)
    };
    match lines
        .iter()
        .all(|line| tokens(line).is_some_and(|count| count > 0))
    {
        true if lines.len() == prompts => Ok(()),
        _ => Err(format!(
            "{} lines for {prompts} prompts, or one without tokens",
            lines.len()
        )),
    }
}

/// The files of a model in `parent/out`, each of them with something in it, and nothing else in `parent`.
fn whole_model(parent: &Path) -> Result<(), String> {
    let names = |folder: &Path| -> Vec<String> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    };
    if names(parent) != ["out"] {
        return Err(format!("the output's folder holds {:?}", names(parent)));
    }
    let model = parent.join("out");
    for name in ["genai_config.json", "model.onnx", "model.onnx.data"] {
        if fs::metadata(model.join(name)).map_or(0, |file| file.len()) == 0 {
            return Err(format!("the model has no {name}: {:?}", names(&model)));
        }
    }
    Ok(())
}

/// How a process ended.
struct Done {
    status: ExitStatus,
    stdout: String,
    stderr: String,
    memory: u64,
    late: bool,
}

fn run(case: &Case, world: &Path, temporary: &Path) -> Done {
    let streams = tempfile::tempdir().unwrap();
    let at = |name: &str| streams.path().join(name);
    let file = |name: &str| Stdio::from(File::create(at(name)).unwrap());
    let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    let mut command = command(case, world, temporary);
    command
        // What steps cost is kept there; it is no business of who runs the tests.
        .env("XDG_CACHE_HOME", at("cache"))
        .stdin(Stdio::null())
        .stdout(file("out"))
        .stderr(file("err"));
    match case.output {
        Output::Read | Output::Closed => {}
        Output::Full => {
            command.stdout(full());
        }
        Output::ErrorsFull => {
            command.stderr(full());
        }
        Output::Gone => {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            command.stdout(writer);
        }
    }
    if !case.input.is_empty() {
        fs::write(at("in"), &case.input).unwrap();
        command.stdin(File::open(at("in")).unwrap());
    }
    let mut child = command.spawn().unwrap();
    let (status, memory, late) = watch(&mut child);
    let read = |name: &str| {
        let mut bytes = Vec::new();
        if let Ok(file) = File::open(at(name)) {
            file.take(4 << 20).read_to_end(&mut bytes).unwrap();
        }
        String::from_utf8_lossy(&bytes).into_owned()
    };
    Done {
        status,
        stdout: read("out"),
        stderr: read("err"),
        memory,
        late,
    }
}

/// The tool behind a shell that sets the bounds.
fn command(case: &Case, world: &Path, temporary: &Path) -> Command {
    let mut script = format!(
        "ulimit -c 0; ulimit -v {}; ulimit -t {MOST_SECONDS}; ",
        ADDRESS_SPACE >> 10
    );
    if let Some(bytes) = case.disk {
        // The tool has to make an error, as on a full disk, of the signal that a write beyond the bound sends.
        script += &format!("ulimit -f {}; ", bytes.div_ceil(512));
    }
    script += "exec \"$0\" \"$@\"";
    if case.output == Output::Closed {
        script += " >&-";
    }
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(tool(case.tool));
    command.args(case.args.iter().map(|arg| bytes(&here(arg, world))));
    command
        .env("TMPDIR", temporary)
        .env_remove("RUST_BACKTRACE");
    for (name, value) in &case.variables {
        command.env(name, bytes(&here(value, world)));
    }
    command
}

/// An argument as the system takes it: any bytes.
pub(crate) fn bytes(text: &str) -> OsString {
    let mut parts = text.split(BYTE).map(str::as_bytes);
    let first = parts.next().unwrap_or_default().to_vec();
    let rest = parts.flat_map(|part| [&[0xFF], part].concat());
    OsString::from_vec(first.into_iter().chain(rest).collect())
}

fn here(text: &str, world: &Path) -> String {
    text.replace(HERE, world.to_str().unwrap())
}

/// Waits for the end, and looks how much memory was resident at most.
fn watch(child: &mut Child) -> (ExitStatus, u64, bool) {
    let (start, status_file) = (Instant::now(), format!("/proc/{}/status", child.id()));
    let mut memory = 0;
    loop {
        memory = resident(&status_file).unwrap_or(0).max(memory);
        if let Some(status) = child.try_wait().unwrap() {
            return (status, memory, false);
        }
        if start.elapsed() > CLOCK {
            child.kill().unwrap();
            return (child.wait().unwrap(), memory, true);
        }
        std::thread::sleep(Duration::from_millis(3));
    }
}

fn resident(status: &str) -> Option<u64> {
    let text = fs::read_to_string(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes << 10)
}

/// A tool beside this program, no older than what it was built from.
pub(crate) fn tool(name: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let tool = program.ancestors().nth(2).unwrap().join(name);
    assert!(
        is_fresh(&tool).unwrap_or(false),
        "{} is absent or older than its sources: `cargo build -p build-model -p pawl-cli` builds it",
        tool.display()
    );
    tool
}

/// Whether a program is newer than every file that cargo's list beside it names.
fn is_fresh(tool: &Path) -> Option<bool> {
    let changed = |path: &Path| fs::metadata(path).ok()?.modified().ok();
    let built = changed(tool)?;
    let list = fs::read_to_string(tool.with_extension("d")).ok()?;
    let (_, sources) = list.lines().next()?.split_once(": ")?;
    let sources = sources.replace("\\ ", "\0");
    let mut sources = sources.split(' ').map(|path| path.replace('\0', " "));
    Some(sources.all(|path| changed(Path::new(&path)).is_some_and(|at| at <= built)))
}

/// What lies in a folder: kinds, sizes, links and contents.
fn snapshot(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(path) = open.pop() {
        for entry in fs::read_dir(&path).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let kind = metadata.file_type();
            let entry = if kind.is_dir() {
                open.push(path.clone());
                "folder".to_owned()
            } else if kind.is_symlink() {
                format!("link to {}", fs::read_link(&path).unwrap().display())
            } else if kind.is_fifo() || kind.is_socket() {
                "special".to_owned()
            } else {
                format!(
                    "{} bytes, {}",
                    metadata.len(),
                    content(&path, metadata.len())
                )
            };
            found.insert(path, entry);
        }
    }
    found
}

fn content(path: &Path, length: u64) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let changed = || format!("{:?}", fs::metadata(path).unwrap().modified().unwrap());
    if length > 16 << 20 {
        return changed();
    }
    let mut hasher = DefaultHasher::new();
    fs::read(path).unwrap_or_default().hash(&mut hasher);
    hasher.finish().to_string()
}
