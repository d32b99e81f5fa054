//! The command as its users see it: options, messages, exit codes, and what is left on disk.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/checkpoints/tiny-python")
}

fn command(input: &Path, output: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_build-model"));
    command
        .arg("--input")
        .arg(input)
        .arg("--output")
        .arg(output)
        .args(more);
    command
}

fn run(input: &Path, output: &Path, more: &[&str]) -> Output {
    command(input, output, more).output().unwrap()
}

fn built(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The message of a run that must be refused.
fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|e| name(e.unwrap()))
        .collect();
    names.sort_unstable();
    names
}

fn world() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn the_shipped_checkpoint_builds_and_the_report_is_json() {
    let world = world();
    let output = world.path().join("models/tiny");
    let report: Value =
        serde_json::from_str(&built(&run(&shipped(), &output, &["--json"]))).unwrap();
    assert_eq!(report["output"], output.to_str().unwrap());
    assert_eq!(report["options"]["dtype"], "f32");
    assert_eq!(report["options"]["checkpoints"], "update:8");
    assert_eq!(report["options"]["spelling"], "pawl");
    assert_eq!(report["options"]["mtp_weights"], "int8");
    assert_eq!(report["warnings"], serde_json::json!([]));
    let verified = report["verified"].as_array().unwrap();
    assert_eq!(
        (verified.len(), &verified[0]["opened_on_cpu"]),
        (2, &Value::Bool(true))
    );
    let files: Vec<_> = report["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["name"].as_str().unwrap())
        .collect();
    assert_eq!(files, names(&output));
    for name in [
        "model.onnx",
        "model.onnx.data",
        "mtp.onnx",
        "genai_config.json",
        "tokenizer.json",
    ] {
        assert!(files.contains(&name), "{name}");
    }
    assert_eq!(names(world.path()), ["models"]);
    assert_eq!(names(&world.path().join("models")), ["tiny"]);
}

#[test]
fn every_option_has_its_effect() {
    let world = world();
    let output = world.path().join("out");
    let config = |more: &[&str]| -> Value {
        built(&run(&shipped(), &output, more));
        serde_json::from_slice(&fs::read(output.join("genai_config.json")).unwrap()).unwrap()
    };
    let plain = config(&["--checkpoints", "none", "--no-mtp", "--max-sequence", "64"]);
    assert_eq!(plain["model"]["context_length"], 64);
    assert!(plain["model"].get("mtp").is_none());
    let text = plain.to_string();
    assert!(!text.contains("checkpoint"), "{text}");
    assert!(!output.join("mtp.onnx").exists());

    let state = config(&[
        "--checkpoints",
        "state:3",
        "--dtype",
        "f32",
        "--target",
        "cpu",
        "--force",
    ]);
    let groups = state["model"]["decoder"]["state_groups"]
        .as_array()
        .unwrap();
    let forms: Vec<_> = groups
        .iter()
        .filter_map(|group| group.get("checkpoint_form"))
        .collect();
    assert_eq!(forms, ["state", "state"]);
    assert!(output.join("mtp.onnx").exists());

    let bytes = || fs::metadata(output.join("mtp.onnx.data")).unwrap().len();
    let int8 = bytes();
    config(&["--mtp-weights", "same", "--force"]);
    // All but the output projection, which is shared, at 4 bytes a weight; with it at 1.125.
    assert!(int8 < bytes() / 2, "{int8} of {}", bytes());
}

#[test]
fn combinations_that_cannot_be_built_say_why() {
    for (options, reason) in [
        ("--target cuda --dtype f32", "float16 and bfloat16 only"),
        ("--dtype f16", "compute in float32"),
        ("--dtype bf16 --target cpu", "compute in float32"),
        (
            "--target cuda --checkpoints state:4",
            "transitions, not states",
        ),
        (
            "--target cuda --spelling genai-0.18 --checkpoints state:4",
            "transitions only",
        ),
        (
            "--spelling genai-0.18",
            "does not know Pawl's CPU operators",
        ),
        ("--checkpoints update:9", "update:W (W is 1 to 8)"),
        ("--checkpoints state:0", "update:W (W is 1 to 8)"),
        ("--checkpoints often", "--checkpoints"),
        ("--target tpu", "expected cpu or cuda"),
        (
            "--target cuda --mtp-weights int8",
            "--mtp-weights int8 cannot be built for --target cuda --dtype f16",
        ),
        ("--mtp-weights int4", "expected int8 or same"),
        ("--dtype int4", "expected f32, f16 or bf16"),
        ("--spelling genai", "expected pawl or genai-0.18"),
        ("--max-sequence 0", "expected a whole number from 1 to"),
        ("--max-sequence -1", "--max-sequence"),
        ("--max-sequence 4294967296", "--max-sequence"),
        ("--max-sequence 99999999", "--max-sequence 99999999"),
        ("--precision high", "--precision"),
        ("--force --force", "--force"),
        ("extra", "extra"),
    ] {
        let world = world();
        let options: Vec<_> = options.split(' ').collect();
        let message = refused(&run(&shipped(), &world.path().join("a/out"), &options));
        assert!(message.contains(reason), "{options:?}: {message}");
        assert_eq!(names(world.path()), Vec::<String>::new(), "{options:?}");
    }
    let alone = Command::new(env!("CARGO_BIN_EXE_build-model"))
        .output()
        .unwrap();
    assert!(refused(&alone).contains("--input"));
}

#[test]
fn an_existing_output_needs_force_and_survives_a_failure() {
    let world = world();
    let output = world.path().join("out");
    built(&run(&shipped(), &output, &["--no-mtp"]));
    let before = names(&output);
    let message = refused(&run(&shipped(), &output, &[]));
    assert!(
        message.contains("out: exists already; --force replaces it"),
        "{message}"
    );

    let missing = world.path().join("missing");
    let message = refused(&run(&missing, &output, &["--force"]));
    assert!(message.contains("missing: cannot be read"), "{message}");
    let broken = world.path().join("broken");
    fs::create_dir(&broken).unwrap();
    fs::copy(shipped().join("config.json"), broken.join("config.json")).unwrap();
    fs::write(broken.join("model.safetensors"), [1, 2, 3]).unwrap();
    let message = refused(&run(&broken, &output, &["--force"]));
    assert!(
        message.contains("model.safetensors: is truncated"),
        "{message}"
    );
    assert_eq!(names(&output), before);
    assert_eq!(names(world.path()), ["broken", "out"]);

    built(&run(&shipped(), &output, &["--force"]));
    assert!(names(&output).len() > before.len());
    fs::remove_file(output.join("genai_config.json")).unwrap();
    let message = refused(&run(&shipped(), &output, &["--force"]));
    assert!(message.contains("not an exported model"), "{message}");
}

#[test]
fn cuda_models_are_verified_as_far_as_a_cpu_can() {
    let world = world();
    for (spelling, dtype) in [("pawl", "f16"), ("pawl", "bf16"), ("genai-0.18", "f16")] {
        let options = [
            "--target",
            "cuda",
            "--spelling",
            spelling,
            "--dtype",
            dtype,
            "--force",
        ];
        let text = built(&run(&shipped(), &world.path().join("out"), &options));
        assert!(
            text.contains("verified: model.onnx") && text.contains("another provider"),
            "{text}"
        );
        for kind in ["causal_conv", "gated_delta_net"] {
            let file = format!("commit.{kind}.onnx");
            let run = text
                .lines()
                .any(|line| line.contains(&file) && line.contains("leaves what the host's replay"));
            assert_eq!(run, spelling == "pawl", "{file}: {text}");
        }
    }
}

/// Runs a build with a library given in the environment. Its input is broken too, which must not be noticed first.
fn with_library(library: &Path) -> String {
    let (input, world) = (world(), world());
    let mut command = command(input.path(), &world.path().join("a/out"), &[]);
    let message = refused(&command.env("ORT_DYLIB_PATH", library).output().unwrap());
    assert_eq!(names(world.path()), Vec::<String>::new(), "{message}");
    assert!(message.contains("nothing was built"), "{message}");
    message
}

/// Compiles a library that says it is ONNX Runtime 1.31.1; `None` where no compiler can be run.
fn old_library(folder: &Path) -> Option<PathBuf> {
    let body = r#"
#[repr(C)]
pub struct Base(extern "system" fn(u32) -> *const u8, extern "system" fn() -> *const u8);
extern "system" fn api(_: u32) -> *const u8 { std::ptr::null() }
extern "system" fn version() -> *const u8 { b"1.31.1\0".as_ptr() }
static BASE: Base = Base(api, version);
#[no_mangle]
pub extern "system" fn OrtGetApiBase() -> *const Base { &BASE }
"#;
    let (source, library) = (folder.join("old.rs"), folder.join("old.so"));
    fs::write(&source, body).unwrap();
    let rustc = option_env!("RUSTC").unwrap_or("rustc");
    let mut compiler = Command::new(rustc);
    compiler.args([
        "--edition",
        "2021",
        "--crate-type",
        "cdylib",
        "-C",
        "panic=abort",
    ]);
    let done = compiler.arg("-o").args([&library, &source]).output().ok()?;
    assert!(done.status.success(), "{done:?}");
    Some(library)
}

#[test]
fn a_library_that_cannot_verify_is_refused_before_anything_is_built() {
    let world = world();
    let message = with_library(&world.path().join("none.so"));
    assert!(
        message.contains("none.so") && message.contains("ORT_DYLIB_PATH"),
        "{message}"
    );

    let text = world.path().join("text.so");
    fs::write(&text, "not a library").unwrap();
    let message = with_library(&text);
    assert!(message.contains("text.so` cannot be loaded"), "{message}");

    let Some(old) = old_library(world.path()) else {
        eprintln!("skipped: no Rust compiler to make a stub library with");
        return;
    };
    let message = with_library(&old);
    assert!(
        message.contains("1.31.1") && message.contains("is too old"),
        "{message}"
    );
}

/// A model like the shipped one with a vocabulary so large, and values of zero, that a build can be
/// caught at work.
fn large(folder: &Path) {
    let vocabulary = 200_000_u64;
    let config = fs::read_to_string(shipped().join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["vocab_size"] = vocabulary.into();
    fs::write(folder.join("config.json"), config.to_string()).unwrap();

    let file = fs::read(shipped().join("model.safetensors")).unwrap();
    let length = usize::try_from(u64::from_le_bytes(file[..8].try_into().unwrap())).unwrap();
    let mut header: Value = serde_json::from_slice(&file[8..8 + length]).unwrap();
    let tensors = header.as_object_mut().unwrap();
    tensors.remove("__metadata__");
    let mut reached = 0;
    for (name, tensor) in tensors {
        if name.contains("embed_tokens") || name.contains("lm_head") {
            tensor["shape"][0] = vocabulary.into();
        }
        let shape = tensor["shape"].as_array().unwrap();
        let elements: u64 = shape
            .iter()
            .map(|extent| extent.as_u64().unwrap())
            .product();
        tensor["dtype"] = "F32".into();
        tensor["data_offsets"] = serde_json::json!([reached, reached + elements * 4]);
        reached += elements * 4;
    }
    let header = header.to_string();
    let prefix = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
    let path = folder.join("model.safetensors");
    fs::write(&path, &prefix).unwrap();
    let file = fs::File::options().append(true).open(path).unwrap();
    file.set_len(prefix.len() as u64 + reached).unwrap();
}

/// Starts a build over an old output and sends it a signal while it writes.
///
/// Returns its status, or `None` where it was never caught at work.
fn signalled(input: &Path, output: &Path, signal: &str) -> Option<ExitStatus> {
    let build = || command(input, output, &["--force"]);
    (0..20).find_map(|_| signalled_once(build(), output, signal))
}

fn signalled_once(mut build: Command, output: &Path, signal: &str) -> Option<ExitStatus> {
    let parent = output.parent().unwrap();
    let build = build.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = build.spawn().unwrap();
    let at_work = || {
        let hidden = fs::read_dir(parent).unwrap().flatten();
        let mut data = hidden.map(|entry| entry.path().join("model/model.onnx.data"));
        data.any(|path| path.exists())
    };
    let caught = loop {
        match (at_work(), child.try_wait().unwrap()) {
            (true, None) => break true,
            (_, Some(_)) => break false,
            (false, None) => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    // The shell's own: not every machine has a program of that name.
    let kill = format!("kill {signal} {}", child.id());
    let mut shell = Command::new("sh");
    let sent = shell.args(["-c", &kill]).stderr(Stdio::null()).status();
    let sent = sent.unwrap().success();
    Some(child.wait().unwrap()).filter(|_| caught && sent)
}

/// A large input, an old output, and the bytes of its weights.
fn under_way() -> (TempDir, TempDir, PathBuf, Vec<u8>) {
    let (input, world) = (world(), world());
    large(input.path());
    let output = world.path().join("out");
    built(&run(&shipped(), &output, &[]));
    let before = fs::read(output.join("model.onnx.data")).unwrap();
    (input, world, output, before)
}

#[cfg(unix)]
#[test]
fn a_killed_build_leaves_the_old_output_and_no_trace_after_the_next() {
    let (input, world, output, before) = under_way();
    let status = signalled(input.path(), &output, "-KILL").expect("never caught at work");
    assert!(!status.success());
    assert!(fs::read(output.join("model.onnx.data")).unwrap() == before);
    let left: Vec<_> = names(world.path())
        .into_iter()
        .filter(|name| name != "out")
        .collect();
    assert!(
        left.len() == 1 && left[0].starts_with(".out.pawl-"),
        "{left:?}"
    );

    refused(&run(&shipped(), &output, &[]));
    assert_eq!(names(world.path()), ["out"]);
}

/// Whether this process ignores a signal, and so do the programs it starts.
#[cfg(unix)]
fn ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.map_or(0, |mask| u64::from_str_radix(mask.trim(), 16).unwrap());
    mask >> (signal - 1) & 1 == 1
}

#[cfg(unix)]
#[test]
fn an_interrupted_build_leaves_nothing_and_exits_as_shells_expect() {
    let (input, world, output, before) = under_way();
    for (signal, number) in [("-INT", 2), ("-TERM", 15), ("-HUP", 1)] {
        if ignored(number) {
            eprintln!("skipped: {signal} is ignored here");
            continue;
        }
        let status = signalled(input.path(), &output, signal).expect("never caught at work");
        assert_eq!(status.code(), Some(128 + number), "{signal}");
        assert_eq!(names(world.path()), ["out"], "{signal}");
        assert!(
            fs::read(output.join("model.onnx.data")).unwrap() == before,
            "{signal}"
        );
    }
}

/// The report waits for a reader, so the process is caught after it has published.
#[cfg(unix)]
#[test]
fn a_signal_after_the_model_is_in_place_does_not_make_a_failure_of_it() {
    use std::io::{Read, Write};
    if ignored(15) {
        eprintln!("skipped: SIGTERM is ignored here");
        return;
    }
    let world = world();
    let output = world.path().join("out");
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let mut build = command(&shipped(), &output, &[]);
    build.stdout(writer.try_clone().unwrap());
    let full = std::thread::spawn(move || writer.write_all(&[b' '; 1 << 20]).unwrap());
    let mut child = build.stderr(Stdio::null()).spawn().unwrap();
    drop(build);
    // Only the output: what was staged is gone too.
    while names(world.path()) != ["out"] {
        assert!(child.try_wait().unwrap().is_none(), "it ended before");
        std::thread::sleep(Duration::from_millis(1));
    }
    let kill = format!("kill -TERM {}; sleep 0.2", child.id());
    Command::new("sh").args(["-c", &kill]).status().unwrap();
    let mut said = Vec::new();
    reader.read_to_end(&mut said).unwrap();
    full.join().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(said.len() > 1 << 20, "the report is printed");
}

#[cfg(unix)]
#[test]
fn a_signal_that_was_ignored_at_the_start_does_not_end_a_build() {
    let (input, world, output, before) = under_way();
    let ignoring = || {
        let build = command(input.path(), &output, &["--force"]);
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]);
        shell.arg(build.get_program()).args(build.get_args());
        shell
    };
    let status = (0..20).find_map(|_| signalled_once(ignoring(), &output, "-HUP"));
    assert_eq!(status.expect("never caught at work").code(), Some(0));
    assert_eq!(names(world.path()), ["out"]);
    assert!(fs::read(output.join("model.onnx.data")).unwrap() != before);
}

#[cfg(unix)]
#[test]
fn an_output_that_the_input_links_into_is_not_replaced() {
    let (input, world) = (world(), world());
    let output = world.path().join("out");
    built(&run(&shipped(), &output, &["--no-mtp"]));
    fs::copy(
        shipped().join("config.json"),
        input.path().join("config.json"),
    )
    .unwrap();
    fs::copy(
        shipped().join("model.safetensors"),
        output.join("model.safetensors"),
    )
    .unwrap();
    let link = input.path().join("model.safetensors");
    std::os::unix::fs::symlink(output.join("model.safetensors"), link).unwrap();
    let message = refused(&run(input.path(), &output, &["--force"]));
    assert!(message.contains("model.safetensors links to"), "{message}");
    assert!(output.join("model.safetensors").exists());
    let message = refused(&run(&output, &output, &["--force"]));
    assert!(
        message.contains("is the input folder or contains it"),
        "{message}"
    );
}
