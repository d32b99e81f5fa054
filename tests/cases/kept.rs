//! States that outlive their requests: the tokens of a continuation are those of a fresh run, and room is found.

#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a case stops where its expectations fail"
)]

use pawl::{
    Completion, DraftPolicy, Engine, EngineOptions, Event, Kept, LoadOptions, Request,
    RequestHandle, Reuse, SamplingParams, Speculation, SubmitError,
};
use pawl_builder::CheckpointOption;
use pawl_tests::export::Export;
use pawl_tests::golden;

/// Rows of at most so many tokens are run token by token, so that cuts cannot show in the last bits.
const CHUNK: usize = 16;

fn options() -> EngineOptions {
    EngineOptions::default()
        .draft_policy(DraftPolicy::Fixed)
        .prefill_chunk(CHUNK)
}

fn engine(export: &Export, load: &LoadOptions, options: &EngineOptions) -> Engine {
    Engine::new(export.load(load), options).unwrap()
}

fn request(ids: &[u32], params: &SamplingParams) -> Request {
    Request::from_ids(ids)
        .sampling(params.clone())
        .max_new_tokens(12)
        .ignore_eos(true)
}

fn greedy(ids: &[u32]) -> Request {
    request(ids, &SamplingParams::greedy())
}

/// What a caller says in one turn.
fn words(turn: u32, count: u32) -> Vec<u32> {
    (0..count).map(|i| 3 + (turn * 31 + i * 7) % 200).collect()
}

/// A state of `tokens` and what follows them in the cache.
fn keep(engine: &Engine, ids: &[u32]) -> (Kept, Vec<u32>) {
    let first = engine.generate(greedy(ids).keep_state(true)).unwrap();
    (first.kept.unwrap(), [ids, &first.tokens].concat())
}

fn reused(completion: &Completion) -> (Reuse, u64) {
    (completion.usage.reuse, completion.usage.reused_tokens)
}

/// Turns of one conversation, each continued from the one before, against fresh runs of the whole text.
fn converse(what: &str, kept: &Engine, fresh: &Engine, start: &[u32], params: &SamplingParams) {
    let mut ids = start.to_vec();
    let mut state: Option<Kept> = None;
    for turn in 0..4 {
        let expected = fresh.generate(request(&ids, params)).unwrap();
        let known = state.as_ref().map_or(0, |kept| kept.tokens().len() as u64);
        let found = request(&ids, params).keep_state(true).continue_from(state);
        let found = kept.generate(found).unwrap();
        assert_eq!(found.tokens, expected.tokens, "{what}, turn {turn}");
        assert_eq!(found.usage.reused_tokens, known, "{what}, turn {turn}");
        assert_eq!(found.usage.prompt_tokens, ids.len() as u64);
        assert_eq!(expected.usage.reused_tokens, 0);
        ids.extend_from_slice(&found.tokens);
        let left = found.kept.unwrap();
        assert_eq!(left.tokens(), &ids[..ids.len() - 1], "{what}, turn {turn}");
        assert!(left.is_held());
        state = Some(left);
        ids.extend(words(turn, 1 + turn * 11));
    }
}

fn check(name: &str, forms: &[(CheckpointOption, &[Speculation])]) {
    let samplers = [
        SamplingParams::greedy(),
        SamplingParams::sampled(0.8).top_k(40).top_p(0.95).seed(7),
    ];
    let goldens = golden::load(name);
    for (form, modes) in forms {
        let export = Export::of(name, *form);
        for mode in *modes {
            let options = options().speculation(*mode);
            let kept = engine(&export, &LoadOptions::default(), &options);
            let fresh = engine(&export, &LoadOptions::default(), &options);
            for params in &samplers {
                for (p, golden) in goldens.iter().enumerate() {
                    let what = format!("{name}, {form:?}, {mode}, {params:?}, prompt {p}");
                    converse(&what, &kept, &fresh, &golden.ids, params);
                }
            }
            assert_eq!(kept.kept_states().evicted, 0);
        }
    }
}

const OFF: &[Speculation] = &[Speculation::Off];
const NGRAM: &[Speculation] = &[Speculation::Off, Speculation::Ngram];
const ALL: &[Speculation] = &[Speculation::Off, Speculation::Ngram, Speculation::Mtp];

#[test]
fn gated_delta_and_attention() {
    let forms = [
        (CheckpointOption::Update(8), ALL),
        (CheckpointOption::State(8), ALL),
        (CheckpointOption::None, OFF),
    ];
    check("qwen3_5-odd", &forms);
}

#[test]
fn short_convolution_and_attention() {
    let forms = [
        (CheckpointOption::Update(8), NGRAM),
        (CheckpointOption::State(8), NGRAM),
        (CheckpointOption::None, OFF),
    ];
    check("lfm2-odd", &forms);
}

#[test]
fn attention_only() {
    check("llama-odd", &[(CheckpointOption::None, NGRAM)]);
}

/// Cancelled while it answers, while its prompt runs, and while it waits.
#[test]
fn a_cancelled_request_leaves_what_it_committed() {
    let export = Export::of("qwen3_5-odd", CheckpointOption::Update(8));
    let one = LoadOptions::default().max_batch_size(1);
    let engine = engine(&export, &one, &options());
    let ids = words(1, 300);
    let long = |ids: &[u32]| greedy(ids).max_new_tokens(2000).keep_state(true);

    let mut answering = engine.submit(long(&ids)).unwrap();
    let (mut tokens, left) = cancel_after(&mut answering, 3);
    let left = left.unwrap();
    tokens.splice(0..0, ids.iter().copied());
    assert_eq!(left.tokens(), &tokens[..tokens.len() - 1]);
    let continued = [left.tokens(), &[9, 8]].concat();

    let waiting = engine
        .submit(long(&continued).continue_from(left.clone()))
        .unwrap();
    let behind = engine
        .submit(long(&continued).continue_from(left.clone()))
        .unwrap();
    behind.cancel();
    let gone = behind.wait().unwrap();
    assert_eq!((gone.kept, gone.usage.reuse), (None, Reuse::Gone));
    waiting.cancel();
    let kept = waiting.wait().unwrap().kept.unwrap();
    assert!(kept.tokens().starts_with(left.tokens()));

    let prompt = [kept.tokens(), &words(2, 20)].concat();
    let found = engine.generate(greedy(&prompt).continue_from(kept.clone()));
    let found = found.unwrap();
    assert_eq!(
        reused(&found),
        (Reuse::Continued, kept.tokens().len() as u64)
    );
    assert_eq!(
        found.tokens,
        engine.generate(greedy(&prompt)).unwrap().tokens
    );
    assert_eq!(engine.kept_states().held, 0);
}

/// Cancels after some tokens. Tokens that came, and what was left.
fn cancel_after(handle: &mut RequestHandle, count: usize) -> (Vec<u32>, Option<Kept>) {
    let (mut all, canceller) = (Vec::new(), handle.canceller());
    while let Some(event) = handle.next_event() {
        match event {
            Event::Tokens { tokens, .. } => {
                all.extend(tokens);
                if all.len() >= count {
                    canceller.cancel();
                }
            }
            Event::Finished { kept, .. } => return (all, kept),
            other => panic!("unexpected {other:?}"),
        }
    }
    panic!("no end")
}

#[test]
fn a_request_that_never_ran_hands_the_state_back() {
    let export = Export::of("qwen3_5-odd", CheckpointOption::Update(8));
    let engine = engine(&export, &LoadOptions::default(), &options());
    let (kept, text) = keep(&engine, &words(1, 5));
    // Asked for drafts, the engine waits until `go` is dropped.
    let (reached, arrival) = std::sync::mpsc::sync_channel(16);
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let busy = greedy(&words(2, 5)).drafts(move |_: &[u32], _: usize| {
        let _ = reached.send(());
        let _ = gate.lock().unwrap().recv();
        Vec::new()
    });
    let busy = engine.submit(busy).unwrap();
    arrival.recv().unwrap();
    let next = greedy(&text).keep_state(true).continue_from(kept.clone());
    let waiting = engine.submit(next).unwrap();
    waiting.cancel();
    drop(go);
    let ended = waiting.wait().unwrap();
    assert_eq!(reused(&ended), (Reuse::NotStarted, 0));
    assert_eq!(ended.kept, Some(kept.clone()));
    assert!(kept.is_held());
    assert_eq!(busy.wait().unwrap().tokens.len(), 12);
}

#[test]
fn what_cannot_be_continued_is_computed_and_told() {
    let export = Export::of("qwen3_5-odd", CheckpointOption::Update(8));
    let engine = engine(&export, &LoadOptions::default(), &options());
    let (kept, text) = keep(&engine, &words(1, 40));
    let check = |ids: &[u32], reuse: Reuse| {
        let expected = engine.generate(greedy(ids)).unwrap();
        let found = engine
            .generate(greedy(ids).continue_from(kept.clone()))
            .unwrap();
        assert_eq!(found.tokens, expected.tokens);
        assert_eq!(found.usage.reuse, reuse);
        let known = if reuse == Reuse::Continued {
            kept.tokens().len()
        } else {
            0
        };
        assert_eq!(found.usage.reused_tokens, known as u64);
    };
    let mut other = text.clone();
    other[20] ^= 1;
    check(&other, Reuse::Diverged);
    check(&text[..30], Reuse::Diverged);
    check(kept.tokens(), Reuse::NothingLeft);
    assert!(kept.is_held(), "a state that was not used stays");
    check(&text, Reuse::Continued);
    assert!(!kept.is_held());
    check(&text, Reuse::Gone);

    let elsewhere = Engine::new(export.load(&LoadOptions::default()), &options()).unwrap();
    let refused = elsewhere.submit(greedy(&text).continue_from(kept));
    assert!(matches!(refused, Err(SubmitError::ForeignState)));
}

#[test]
fn the_oldest_states_make_room() {
    let export = Export::of("qwen3_5-odd", CheckpointOption::Update(8));
    let three = LoadOptions::default().max_batch_size(3);
    let engine = engine(&export, &three, &options());
    let states: Vec<_> = (0..3).map(|n| keep(&engine, &words(n, 20))).collect();
    let held = || {
        states
            .iter()
            .map(|(kept, _)| kept.is_held())
            .collect::<Vec<_>>()
    };
    assert_eq!((held(), engine.kept_states().held), (vec![true; 3], 3));

    engine.generate(greedy(&words(9, 5))).unwrap();
    assert_eq!(held(), [false, true, true]);
    // A continuation brings its own room.
    let (kept, text) = &states[1];
    let found = engine
        .generate(greedy(text).continue_from(kept.clone()))
        .unwrap();
    assert_eq!(reused(&found), (Reuse::Continued, 31));
    assert_eq!(held(), [false, false, true]);
    assert_eq!(engine.kept_states().evicted, 1);
    let (kept, text) = &states[0];
    let found = engine
        .generate(greedy(text).continue_from(kept.clone()))
        .unwrap();
    assert_eq!(reused(&found), (Reuse::Gone, 0));
    assert_eq!(found.tokens, engine.generate(greedy(text)).unwrap().tokens);
    assert!(states[2].0.is_held());
}

#[test]
fn blocks_of_kept_states_make_room() {
    let export = Export::of("llama-odd", CheckpointOption::None);
    let small = LoadOptions::default().kv_blocks(8);
    let engine = engine(&export, &small, &options());
    let (first, _) = keep(&engine, &words(1, 60));
    let (second, text) = keep(&engine, &words(2, 60));
    // 3 + 3 blocks are held. Two are enough here,
    engine.generate(greedy(&words(3, 40))).unwrap();
    assert!(first.is_held() && second.is_held());
    // not here, and the continuation of the second needs 4 of its own and the first's.
    let next = [text, words(4, 80)].concat();
    let found = engine.generate(greedy(&next).max_new_tokens(90).continue_from(second));
    assert_eq!(reused(&found.unwrap()), (Reuse::Continued, 71));
    assert!(!first.is_held());
    assert_eq!(engine.kept_states().evicted, 1);
}

#[test]
fn a_dropped_state_is_free() {
    let export = Export::of("qwen3_5-odd", CheckpointOption::Update(8));
    let one = LoadOptions::default().max_batch_size(1);
    let engine = engine(&export, &one, &options());
    let unread = engine
        .submit(greedy(&words(1, 9)).keep_state(true))
        .unwrap();
    drop(unread);
    let (kept, _) = keep(&engine, &words(1, 9));
    let other = kept.clone();
    drop(kept);
    assert!(other.is_held());
    drop(other);
    engine.generate(greedy(&words(2, 9))).unwrap();
    let stats = engine.kept_states();
    assert_eq!((stats.held, stats.evicted), (0, 0));
}

#[test]
fn a_state_survives_its_engine_as_a_handle_only() {
    let export = Export::of("lfm2-odd", CheckpointOption::Update(8));
    let engine = engine(&export, &LoadOptions::default(), &options());
    let (kept, _) = keep(&engine, &words(1, 9));
    drop(engine);
    assert!(!kept.is_held());
    assert_eq!(kept.tokens().len(), 20);
}

/// Conversations that share few slots and blocks, side by side, some cancelled: every answer is that of a fresh run.
#[test]
fn crowded_conversations_agree_with_fresh_runs() {
    let export = Export::of("qwen3_5-odd", CheckpointOption::Update(8));
    let few = LoadOptions::default().max_batch_size(3).kv_blocks(14);
    let crowded = engine(&export, &few, &options().max_scheduled_tokens(24));
    let fresh = engine(&export, &LoadOptions::default(), &options());
    let count = 6;
    let mut texts: Vec<Vec<u32>> = (0..count).map(|n| words(n, 5 + 9 * n)).collect();
    let mut states: Vec<Option<Kept>> = vec![None; texts.len()];
    let mut seen = std::collections::BTreeSet::new();
    for turn in 0..5u32 {
        let submit = |(text, state): (&Vec<u32>, &Option<Kept>)| {
            let request = greedy(text).keep_state(true).continue_from(state.clone());
            crowded.submit(request).unwrap()
        };
        let handles: Vec<_> = texts.iter().zip(&states).map(submit).collect();
        for (n, mut handle) in handles.into_iter().enumerate() {
            let cancelled = (n as u32 + turn).is_multiple_of(4);
            let (tokens, kept) = if cancelled {
                cancel_after(&mut handle, 4)
            } else {
                let found = handle.wait().unwrap();
                seen.insert(found.usage.reuse.as_str());
                (found.tokens, found.kept)
            };
            let expected = fresh.generate(greedy(&texts[n])).unwrap().tokens;
            assert_eq!(
                tokens,
                expected[..tokens.len()],
                "turn {turn}, conversation {n}"
            );
            texts[n].extend(tokens);
            texts[n].extend(words(turn + 7, 3));
            states[n] = kept;
        }
    }
    let expected = ["continued", "gone", "not_asked"];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), expected);
    drop(states);
    crowded.generate(greedy(&[5])).unwrap();
    assert_eq!(crowded.kept_states().held, 0);
}
