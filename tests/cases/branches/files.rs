//! States in files: other processes, other models, processes that are killed.

use super::{engine, greedy, keep, options, setups, words};
use pawl::{Engine, ErrorCode, LoadOptions, Model, Reuse, Speculation};
use pawl_builder::CheckpointOption;
use pawl_tests::export::Export;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// What a child process does: restores, continues, prints the tokens.
#[test]
#[ignore = "run by the case that starts it as a child"]
fn child_restores() {
    let Some(folder) = std::env::var_os("PAWL_TEST_FOLDER") else {
        return;
    };
    let model = std::env::var_os("PAWL_TEST_MODEL").unwrap();
    let folder = Path::new(&folder);
    let model = Model::load(model, &LoadOptions::default()).unwrap();
    let mode: Speculation = std::env::var("PAWL_TEST_MODE").unwrap().parse().unwrap();
    let engine = Engine::new(model, &options().speculation(mode)).unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let kept = engine.restore(&path).unwrap();
        let prompt = [kept.tokens(), &[7, 8]].concat();
        let found = engine
            .generate(greedy(&prompt).continue_from(kept))
            .unwrap();
        assert_eq!(found.usage.reused_tokens as usize, prompt.len() - 2);
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        println!("\n{name}={:?}", found.tokens);
    }
}

/// This file's own binary, running one of its ignored cases.
fn child(case: &str, folder: &Path, export: &Export, mode: Speculation) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", case, "--ignored", "--nocapture"])
        .env("PAWL_TEST_FOLDER", folder)
        .env("PAWL_TEST_MODEL", export.path())
        .env("PAWL_TEST_MODE", mode.to_string());
    command
}

#[test]
fn another_process_goes_on_from_a_saved_state() {
    for (name, form, modes) in setups() {
        let export = Export::of(name, form);
        let mode = *modes.last().unwrap();
        let work = engine(
            &export,
            &LoadOptions::default(),
            &options().speculation(mode),
        );
        let folder = tempfile::tempdir().unwrap();
        let mut expected = BTreeMap::new();
        for length in [1u32, 31, 32, 33, 90] {
            let read = greedy(&words(length, length)).max_new_tokens(0);
            let kept = work.generate(read.keep_state(true)).unwrap().kept.unwrap();
            let file = length.to_string();
            kept.save(folder.path().join(&file)).unwrap();
            let prompt = [kept.tokens(), &[7, 8]].concat();
            // In this process, too.
            let here = work.restore(folder.path().join(&file)).unwrap();
            assert_eq!(here.tokens(), kept.tokens());
            drop(kept);
            let found = work.generate(greedy(&prompt).continue_from(here)).unwrap();
            assert_eq!(found.tokens, work.generate(greedy(&prompt)).unwrap().tokens);
            expected.insert(file, format!("{:?}", found.tokens));
        }
        let output = child("files::child_restores", folder.path(), &export, mode)
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{name}, {form:?}: {printed}");
        let found = printed.lines().filter_map(|line| line.split_once('='));
        let found = found.filter(|(file, _)| expected.contains_key(*file));
        let found = found.map(|(file, tokens)| (file.to_owned(), tokens.to_owned()));
        assert_eq!(
            found.collect::<BTreeMap<_, _>>(),
            expected,
            "{name}, {form:?}"
        );
    }
}

#[test]
fn a_saved_state_fits_its_own_model_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.state");
    let export = Export::of("qwen3_5-odd", CheckpointOption::Update(8));
    let off = options().speculation(Speculation::Off);
    let work = engine(&export, &LoadOptions::default(), &off);
    let (kept, _) = keep(&work, &words(1, 100));
    kept.save(&path).unwrap();
    let refused = |engine: &Engine| {
        let error = engine.restore(&path).unwrap_err();
        assert!(error.to_string().contains("a.state"), "{error}");
        (error.code(), error.to_string())
    };
    // Saved without the head's cache.
    let heads = engine(&export, &LoadOptions::default(), &options());
    let (code, message) = refused(&heads);
    assert_eq!(code, ErrorCode::StateForeign);
    assert!(message.contains("ngram or off"), "{message}");
    // The other way round it is left out.
    let (other, text) = keep(&heads, &words(2, 40));
    let headed = folder.path().join("b.state");
    other.save(&headed).unwrap();
    let restored = work.restore(&headed).unwrap();
    let found = work
        .generate(greedy(&text).continue_from(restored))
        .unwrap();
    assert_eq!(found.tokens, work.generate(greedy(&text)).unwrap().tokens);

    let foreign = Export::of("qwen3_5-odd", CheckpointOption::State(8));
    let foreign = engine(&foreign, &LoadOptions::default(), &off);
    let (code, message) = refused(&foreign);
    assert_eq!(code, ErrorCode::StateForeign);
    assert!(message.contains("another model"), "{message}");

    let small = LoadOptions::default().kv_blocks(3);
    let small = engine(&export, &small, &off);
    assert_eq!(refused_code(&small, &path), ErrorCode::NoRoom);
    let short = LoadOptions::default().max_sequence(64);
    let short = engine(&export, &short, &off);
    assert_eq!(refused_code(&short, &path), ErrorCode::StateForeign);
    assert_eq!((small.kept_states().held, short.kept_states().held), (0, 0));

    std::fs::write(&path, "short").unwrap();
    assert_eq!(refused_code(&work, &path), ErrorCode::StateDamaged);
}

fn refused_code(engine: &Engine, path: &Path) -> ErrorCode {
    engine.restore(path).unwrap_err().code()
}

/// What a child process does: saves states to one file, over and over, until it is killed.
#[test]
#[ignore = "run by the case that starts it as a child"]
fn child_saves() {
    let Some(folder) = std::env::var_os("PAWL_TEST_FOLDER") else {
        return;
    };
    let model = std::env::var_os("PAWL_TEST_MODEL").unwrap();
    let model = Model::load(model, &LoadOptions::default()).unwrap();
    let engine = Engine::new(model, &options()).unwrap();
    let path = Path::new(&folder).join("a.state");
    let states = [
        keep(&engine, &words(1, 500)).0,
        keep(&engine, &words(2, 300)).0,
    ];
    states[0].save(&path).unwrap();
    println!("\nready");
    // Bounded, should nobody kill it.
    for round in 0..100_000 {
        states[round % 2].save(&path).unwrap();
    }
}

#[test]
fn killed_while_it_saves_leaves_a_whole_file() {
    let export = Export::of("tiny-python", CheckpointOption::Update(8));
    let mut options = options();
    options.speculation = None;
    let engine = engine(&export, &LoadOptions::default(), &options);
    for round in 0..4u64 {
        let folder = tempfile::tempdir().unwrap();
        let mut child = child(
            "files::child_saves",
            folder.path(),
            &export,
            Speculation::Off,
        )
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
        let path = folder.path().join("a.state");
        while !path.exists() {
            assert!(child.try_wait().unwrap().is_none(), "the child has ended");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        std::thread::sleep(std::time::Duration::from_millis(20 + round * 11));
        child.kill().unwrap();
        child.wait().unwrap();
        let kept = engine.restore(&path).unwrap();
        assert!([308, 508].contains(&kept.tokens().len()));
        let prompt = [kept.tokens(), &[5]].concat();
        let found = engine
            .generate(greedy(&prompt).continue_from(kept))
            .unwrap();
        assert_eq!(found.usage.reuse, Reuse::Continued);
    }
}
