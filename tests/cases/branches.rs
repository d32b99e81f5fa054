//! States that are forked, rewound, saved and restored go on as if they had been computed on the spot.

#![allow(
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a case stops where its expectations fail; a child is told by its environment what to do"
)]

use pawl::{
    DraftPolicy, Engine, EngineOptions, ErrorCode, Event, Kept, LoadOptions, Model, ObservedStep,
    Request, RequestHandle, Reuse, SamplingParams, Speculation,
};
use pawl_builder::CheckpointOption;
use pawl_tests::export::Export;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

fn options() -> EngineOptions {
    // Rows of at most so many tokens are run token by token, so that cuts cannot show in the last bits.
    EngineOptions::default()
        .draft_policy(DraftPolicy::Fixed)
        .prefill_chunk(16)
}

fn engine(export: &Export, load: &LoadOptions, options: &EngineOptions) -> Engine {
    Engine::new(export.load(load), options).unwrap()
}

fn request(ids: &[u32], params: &SamplingParams) -> Request {
    Request::from_ids(ids)
        .sampling(params.clone())
        .max_new_tokens(9)
        .ignore_eos(true)
}

fn greedy(ids: &[u32]) -> Request {
    request(ids, &SamplingParams::greedy())
}

fn words(seed: u32, count: u32) -> Vec<u32> {
    (0..count).map(|i| 3 + (seed * 31 + i * 7) % 200).collect()
}

/// A state, and all tokens known after it.
fn keep(engine: &Engine, ids: &[u32]) -> (Kept, Vec<u32>) {
    let first = engine.generate(greedy(ids).keep_state(true)).unwrap();
    (first.kept.unwrap(), [ids, &first.tokens].concat())
}

/// Continues a state with some tokens, and compares with a run from nothing.
fn compare(what: &str, engine: &Engine, fresh: &Engine, kept: Kept, rest: &[u32]) {
    for params in [
        SamplingParams::greedy(),
        SamplingParams::sampled(0.8).top_k(40).seed(3),
    ] {
        let prompt = [kept.tokens(), rest].concat();
        let expected = fresh.generate(request(&prompt, &params)).unwrap();
        let branch = kept.fork().unwrap();
        let found = request(&prompt, &params).continue_from(branch);
        let found = engine.generate(found).unwrap();
        assert_eq!(found.tokens, expected.tokens, "{what}, {params:?}");
        assert_eq!(
            found.usage.reused_tokens,
            kept.tokens().len() as u64,
            "{what}"
        );
    }
}

/// Models, their checkpoint forms, and what speculates on them.
fn setups() -> Vec<(&'static str, CheckpointOption, Vec<Speculation>)> {
    use CheckpointOption::{None, State, Update};
    use Speculation::{Mtp, Ngram, Off};
    vec![
        ("qwen3_5-odd", Update(8), vec![Off, Ngram, Mtp]),
        ("qwen3_5-odd", State(8), vec![Off, Ngram, Mtp]),
        ("qwen3_5-odd", None, vec![Off]),
        ("lfm2-odd", Update(8), vec![Off, Ngram]),
        ("lfm2-odd", State(8), vec![Off, Ngram]),
        ("llama-odd", None, vec![Off, Ngram]),
    ]
}

fn each_setup(check: impl Fn(&str, &Engine, &Engine)) {
    for (name, form, modes) in setups() {
        let export = Export::of(name, form);
        for mode in modes {
            let options = options().speculation(mode);
            let work = engine(&export, &LoadOptions::default(), &options);
            let fresh = engine(&export, &LoadOptions::default(), &options);
            check(&format!("{name}, {form:?}, {mode}"), &work, &fresh);
        }
    }
}

#[test]
fn forks_go_their_own_ways() {
    each_setup(|what, work, fresh| {
        // Lengths around the end of a block of 32.
        for length in [20, 22, 23, 24, 55] {
            let (kept, text) = keep(work, &words(length, length));
            let fork = kept.fork().unwrap();
            let again = fork.fork().unwrap();
            assert_eq!(fork.tokens(), kept.tokens());
            assert_ne!(fork, kept);
            // Three requests side by side, one of them another way.
            let prompts = [
                text.clone(),
                [&text[..], &[5, 6, 7]].concat(),
                [fork.tokens(), &words(9, 40)].concat(),
            ];
            let expected = fresh.generate_all(prompts.iter().map(|ids| greedy(ids)));
            let states = [kept, fork, again];
            let found = prompts.iter().zip(&states);
            let found = found.map(|(ids, kept)| greedy(ids).continue_from(kept.clone()));
            let found = work.generate_all(found).unwrap();
            for (found, expected) in found.iter().zip(expected.unwrap()) {
                assert_eq!(found.tokens, expected.tokens, "{what}, {length}");
                assert_eq!(found.usage.reuse, Reuse::Continued);
            }
            assert!(states.iter().all(|kept| !kept.is_held()));
        }
    });
}

#[test]
fn a_running_request_is_forked_and_goes_on() {
    each_setup(|what, work, fresh| {
        let ids = words(2, 30);
        let (mut found, mut branches) = (Vec::new(), Vec::new());
        // A request may end before it is forked, but not each time.
        for _ in 0..50 {
            (found, branches) = fork_while_running(work, &ids);
            if !branches.is_empty() {
                break;
            }
        }
        assert!(!branches.is_empty(), "{what}");
        let whole = greedy(&ids).max_new_tokens(found.len() as u64);
        assert_eq!(found, fresh.generate(whole).unwrap().tokens, "{what}");
        for branch in branches {
            compare(what, work, fresh, branch, &[11, 12]);
        }
    });
}

/// Tokens of a request, and its state at some of them.
fn fork_while_running(engine: &Engine, ids: &[u32]) -> (Vec<u32>, Vec<Kept>) {
    let mut running = engine.submit(greedy(ids).max_new_tokens(1000)).unwrap();
    let (mut found, mut branches) = (Vec::new(), Vec::new());
    while let Some(event) = running.next_event() {
        let Event::Tokens { tokens, .. } = event else {
            continue;
        };
        found.extend(tokens);
        branches.extend(running.fork().ok());
        if branches.len() == 3 {
            running.cancel();
        }
    }
    let ended = running.fork().unwrap_err();
    assert_eq!(ended.code(), ErrorCode::StateGone, "{ended}");
    let text = [ids, &found].concat();
    assert!(
        branches
            .iter()
            .all(|branch| text.starts_with(branch.tokens()))
    );
    (found, branches)
}

#[test]
fn rewound_to_every_position() {
    for (name, form, modes) in setups() {
        let export = Export::of(name, form);
        let options = options().speculation(*modes.last().unwrap());
        let work = engine(&export, &LoadOptions::default(), &options);
        let fresh = engine(&export, &LoadOptions::default(), &options);
        let (first, text) = keep(&work, &words(4, 13));
        let branch = first.fork().unwrap();
        let text = [&text[..], &words(5, 20)].concat();
        let last = greedy(&text).keep_state(true).continue_from(branch);
        let last = work.generate(last).unwrap().kept.unwrap();
        for length in 1..=last.tokens().len() {
            let back = last.rewind(length).unwrap();
            assert_eq!(back.tokens(), &last.tokens()[..length]);
            compare(
                &format!("{name}, {form:?}, {length}"),
                &work,
                &fresh,
                back,
                &[8, 9],
            );
        }
        assert!(first.is_held() && last.is_held());
        for wrong in [0, last.tokens().len() + 1] {
            let error = last.rewind(wrong).unwrap_err();
            assert_eq!(error.code(), ErrorCode::RequestInvalid, "{error}");
        }
        // What was dropped is freed before the next request runs.
        work.generate(greedy(&[5])).unwrap();
        assert_eq!(work.kept_states().held, 2);
    }
}

/// Going back runs the tokens between the nearest state and the position, and nothing else.
#[test]
fn going_back_runs_what_lies_between() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    for (name, form, between) in [
        ("qwen3_5-odd", CheckpointOption::Update(8), 9),
        ("llama-odd", CheckpointOption::None, 0),
    ] {
        let export = Export::of(name, form);
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let options = options().observe_steps(move |step: &ObservedStep<'_>| {
            let run = step.rows().iter().map(pawl::ObservedRow::run);
            counted.fetch_add(run.sum(), Ordering::Relaxed);
        });
        let work = engine(&export, &LoadOptions::default(), &options);
        // 21 tokens are kept twice, then 60 of the same text and 25 of another.
        let (first, text) = keep(&work, &words(4, 13));
        let other = first.fork().unwrap();
        let read = |ids: Vec<u32>, from: &Kept| {
            let read = greedy(&ids).max_new_tokens(0).keep_state(true);
            work.generate(read.continue_from(from.fork().unwrap()))
        };
        let long = read([&text[..], &words(5, 38)].concat(), &first);
        let long = long.unwrap().kept.unwrap();
        let aside = read([&text[..], &words(6, 3)].concat(), &other).unwrap();
        let before = count.load(Ordering::Relaxed);
        let back = long.rewind(30).unwrap();
        assert_eq!(back.tokens().len(), 30);
        let run = count.load(Ordering::Relaxed) - before;
        assert_eq!(run, between, "{name}");
        assert!(aside.kept.unwrap().is_held());
    }
}

/// The engine's thread would wait for itself.
#[test]
fn a_draft_source_cannot_copy_states() {
    let export = Export::of("llama-odd", CheckpointOption::None);
    let work = engine(&export, &LoadOptions::default(), &options());
    let (kept, text) = keep(&work, &words(1, 9));
    let (told, answer) = std::sync::mpsc::channel();
    let (told, inside) = (std::sync::Mutex::new(told), kept.clone());
    let asking = greedy(&text).drafts(move |_: &[u32], _: usize| {
        let error = inside.fork().unwrap_err();
        let _ = told.lock().unwrap().send(error.code());
        Vec::new()
    });
    assert_eq!(work.generate(asking).unwrap().tokens.len(), 9);
    assert_eq!(answer.recv().unwrap(), ErrorCode::StepDiscarded);
    assert!(kept.fork().is_ok());
}

/// A state that is gone is rewound all the same: its tokens are known. Room is made as for any request.
#[test]
fn a_state_that_is_gone_is_computed_again() {
    let export = Export::of("qwen3_5-odd", CheckpointOption::Update(8));
    let one = LoadOptions::default().max_batch_size(1);
    let work = engine(&export, &one, &options());
    let fresh = engine(&export, &LoadOptions::default(), &options());
    let (kept, _) = keep(&work, &words(1, 30));
    let full = kept.fork().unwrap_err();
    assert_eq!(full.code(), ErrorCode::NoRoom, "{full}");
    assert!(kept.is_held(), "a fork evicts nothing");
    let back = kept.rewind(20).unwrap();
    assert!(!kept.is_held() && back.is_held());
    assert_eq!(work.kept_states().evicted, 1);
    let gone = kept.fork().unwrap_err();
    assert_eq!(gone.code(), ErrorCode::StateGone, "{gone}");
    let file = tempfile::tempdir().unwrap().path().join("x");
    assert_eq!(kept.save(&file).unwrap_err().code(), ErrorCode::StateGone);
    let prompt = [back.tokens(), &[4]].concat();
    let found = work.generate(greedy(&prompt).continue_from(back)).unwrap();
    assert_eq!(found.usage.reused_tokens, 20);
    assert_eq!(
        found.tokens,
        fresh.generate(greedy(&prompt)).unwrap().tokens
    );
    drop(work);
    let stopped = kept.rewind(3).unwrap_err();
    assert_eq!(stopped.code(), ErrorCode::EngineStopped, "{stopped}");
}

/// Blocks that forks share are counted once, and running requests can always grow.
#[test]
fn forks_share_blocks_and_leave_room_to_grow() {
    let export = Export::of("llama-odd", CheckpointOption::None);
    let work = engine(&export, &LoadOptions::default().kv_blocks(10), &options());
    let (kept, _) = keep(&work, &words(1, 121));
    // 129 tokens: 4 shared blocks, and one of its own for each; 2 blocks are left after three forks.
    let forks: Vec<Kept> = (0..3).map(|_| kept.fork().unwrap()).collect();
    let (reached, go, busy) = gated(&work, &words(2, 30), 34);
    reached.recv().unwrap();
    // The two are for the request that runs: 30 + 34 tokens.
    let full = kept.fork().unwrap_err();
    assert_eq!(full.code(), ErrorCode::NoRoom, "{full}");
    let short = kept.rewind(128).unwrap();
    assert_eq!(short.tokens().len(), 128, "whole blocks take no room");
    drop(go);
    assert_eq!(busy.wait().unwrap().tokens.len(), 34);
    let fresh = engine(&export, &LoadOptions::default(), &options());
    for (n, fork) in forks.into_iter().chain([kept, short]).enumerate() {
        let prompt = [fork.tokens(), &words(n as u32, 3)].concat();
        let found = work.generate(greedy(&prompt).continue_from(fork)).unwrap();
        assert_eq!(found.usage.reuse, Reuse::Continued);
        assert_eq!(
            found.tokens,
            fresh.generate(greedy(&prompt)).unwrap().tokens
        );
    }
    assert_eq!(work.kept_states().evicted, 0);
}

type Gate = std::sync::mpsc::Sender<()>;

/// A request that stops the engine when it first asks for drafts, until the gate is dropped.
fn gated(
    engine: &Engine,
    ids: &[u32],
    tokens: u64,
) -> (std::sync::mpsc::Receiver<()>, Gate, RequestHandle) {
    let (reached, arrival) = std::sync::mpsc::channel();
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let (reached, gate) = (std::sync::Mutex::new(reached), std::sync::Mutex::new(gate));
    let request = greedy(ids)
        .max_new_tokens(tokens)
        .drafts(move |_: &[u32], _: usize| {
            let _ = reached.lock().unwrap().send(());
            let _ = gate
                .lock()
                .unwrap()
                .recv_timeout(std::time::Duration::from_millis(300));
            Vec::new()
        });
    (arrival, go, engine.submit(request).unwrap())
}

#[test]
fn a_prompt_is_read_without_generating() {
    each_setup(|what, work, fresh| {
        let ids = words(3, 70);
        let read = greedy(&ids).max_new_tokens(0).keep_state(true);
        let read = work.generate(read).unwrap();
        assert_eq!((read.tokens.len(), read.usage.generated_tokens), (0, 0));
        assert!(read.stats.prefill_seconds > 0.0 && read.stats.decode_seconds == 0.0);
        let kept = read.kept.unwrap();
        assert_eq!(kept.tokens(), ids, "{what}");
        compare(what, work, fresh, kept, &[5]);
    });
}

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
        let output = child("child_restores", folder.path(), &export, mode)
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
        let mut child = child("child_saves", folder.path(), &export, Speculation::Off)
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

/// A generator of small numbers that repeats.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// One state of a script.
struct Branch {
    kept: Kept,
    /// All tokens known after it.
    text: Vec<u32>,
}

/// Random scripts of submitting, cancelling, continuing, forking, rewinding, saving, restoring and dropping on few slots
/// and blocks: every answer is that of a run from nothing.
fn script(seed: u64, name: &str, form: CheckpointOption, mode: Speculation) {
    let export = Export::of(name, form);
    let few = LoadOptions::default().max_batch_size(4).kv_blocks(16);
    let work = engine(
        &export,
        &few,
        &options().speculation(mode).max_scheduled_tokens(40),
    );
    let fresh = engine(
        &export,
        &LoadOptions::default(),
        &options().speculation(mode),
    );
    let folder = tempfile::tempdir().unwrap();
    let (mut numbers, mut branches) = (Numbers(seed), Vec::<Branch>::new());
    let mut counts = [0; 8];
    for step in 0..120 {
        let what = format!("seed {seed}, step {step}");
        let at = numbers.below(branches.len().max(1));
        // Places are left for forks.
        let action = if branches.len() < 3 {
            numbers.below(8)
        } else {
            0
        };
        let made = match (action, branches.get(at)) {
            (0, Some(_)) => {
                branches.swap_remove(at);
                counts[0] += 1;
                continue;
            }
            (1, Some(branch)) => branch.kept.fork(),
            (2, Some(branch)) => {
                let length = branch.kept.tokens().len();
                branch.kept.rewind(1 + numbers.below(length))
            }
            (3, Some(branch)) => {
                let path = folder.path().join("x.state");
                match branch.kept.save(&path) {
                    Ok(()) => match work.restore(&path) {
                        Err(pawl::StateFileError::State(error)) => Err(error),
                        other => Ok(other.unwrap()),
                    },
                    Err(error) => {
                        assert_eq!(error.code(), ErrorCode::StateGone, "{what}");
                        continue;
                    }
                }
            }
            (_, branch) => {
                let kept = branch.map(|branch| branch.kept.clone());
                let old = branch.map_or(Vec::new(), |branch| branch.text.clone());
                let extra = words(numbers.below(50) as u32, 1 + numbers.below(30) as u32);
                let mut prompt = [old, extra].concat();
                prompt.truncate(250);
                let cancelled = numbers.below(4) == 0;
                let found = converse(&what, (&work, &fresh), &prompt, kept, cancelled);
                counts[if cancelled { 6 } else { 5 }] += 1;
                branches.extend(found);
                continue;
            }
        };
        match made {
            Ok(kept) => {
                let text = kept.tokens().to_vec();
                branches.push(Branch { kept, text });
                counts[action] += 1;
            }
            Err(error) => {
                let expected = [ErrorCode::StateGone, ErrorCode::NoRoom];
                assert!(expected.contains(&error.code()), "{what}: {error}");
            }
        }
    }
    assert!(counts[..4].iter().all(|count| *count > 0), "{counts:?}");
    drop(branches);
    assert_eq!(
        work.generate(greedy(&[5])).unwrap().usage.generated_tokens,
        9
    );
    assert_eq!(work.kept_states().held, 0);
}

/// One answer; a fork of the running request is compared, too.
fn converse(
    what: &str,
    (work, fresh): (&Engine, &Engine),
    prompt: &[u32],
    kept: Option<Kept>,
    cancelled: bool,
) -> Option<Branch> {
    let expected = fresh.generate(greedy(prompt)).unwrap().tokens;
    let request = greedy(prompt).keep_state(true).continue_from(kept);
    let mut handle = work.submit(request).unwrap();
    let mut found = Vec::new();
    let mut branch = None;
    while let Some(event) = handle.next_event() {
        match event {
            Event::Tokens { tokens, .. } => {
                if found.is_empty() {
                    branch = handle.fork().ok();
                }
                found.extend(tokens);
                if cancelled {
                    handle.cancel();
                }
            }
            Event::Finished { kept, error, .. } => {
                assert_eq!(error, None, "{what}");
                assert_eq!(found, expected[..found.len()], "{what}");
                assert!(cancelled || found.len() == expected.len(), "{what}");
                let whole = [prompt, &expected].concat();
                for kept in kept.iter().chain(&branch) {
                    assert!(whole.starts_with(kept.tokens()), "{what}");
                }
                let text = [prompt, &found].concat();
                return kept.map(|kept| Branch { kept, text });
            }
            other => panic!("unexpected {other:?}"),
        }
    }
    panic!("no end")
}

#[test]
fn scripts_on_a_hybrid_model() {
    for seed in 0..4 {
        let form = if seed % 2 == 0 {
            CheckpointOption::Update(8)
        } else {
            CheckpointOption::State(8)
        };
        let mode = [Speculation::Mtp, Speculation::Ngram][seed as usize / 2];
        script(seed, "qwen3_5-odd", form, mode);
    }
}

#[test]
fn scripts_on_attention_only() {
    for seed in 10..13 {
        script(
            seed,
            "llama-odd",
            CheckpointOption::None,
            Speculation::Ngram,
        );
    }
}
