//! Drafts that reach over an edge: of a block of the cache, of the context, of what a request or a step may run. And
//! requests that end or split at any time.

use super::trees::KnownText;
use super::{BOTH, MOST, engine_of, mix, off, planned, request};
use pawl::{
    DraftPolicy, Engine, EngineOptions, Event, FinishReason, Kept, Request, RequestHandle,
    SamplingParams, Speculation,
};
use pawl_builder::CheckpointOption;
use pawl_tests::export::Export;
use pawl_tests::golden;
use pawl_tests::steps::Recorder;
use std::collections::BTreeSet;

const NEW_TOKENS: usize = 70;

fn params() -> SamplingParams {
    SamplingParams::sampled(0.9).top_k(30).seed(21)
}

fn on(mode: Speculation) -> EngineOptions {
    EngineOptions::default()
        .draft_policy(DraftPolicy::Fixed)
        .speculation(mode)
        .max_drafts(MOST)
        .prefill_chunk(16)
        .audit(true)
}

/// Prompts and the tokens that follow them.
fn texts(name: &str, export: &Export, count: usize) -> Vec<(Vec<u32>, Vec<u32>)> {
    let prompts = golden::load(name).into_iter().map(|golden| golden.ids);
    let prompts: Vec<Vec<u32>> = prompts.take(count).collect();
    let plain = engine_of(export, count, &off().prefill_chunk(16));
    let asked = prompts
        .iter()
        .map(|ids| request(ids, &params(), NEW_TOKENS as u64));
    let found = plain.generate_all(asked).unwrap();
    let tokens = found.into_iter().map(|found| found.tokens);
    prompts.into_iter().zip(tokens).collect()
}

/// Rows end before, at and behind the end of a block, after every number of kept tokens.
#[test]
fn the_end_of_a_block() {
    for name in ["qwen3_5-odd", "tiny-python"] {
        let export = Export::of(name, CheckpointOption::Update(8));
        let mut block = 0;
        export.edit_config(|config| {
            block = config["engine"]["dynamic_batching"]["block_size"]
                .as_u64()
                .unwrap() as usize;
        });
        let (prompt, text) = texts(name, &export, 1).remove(0);
        let mut met = BTreeSet::new();
        for seed in 0..4 {
            let recorder = Recorder::default();
            let options = on(Speculation::Ngram).observe_steps(recorder.clone());
            let engine = engine_of(&export, 1, &options);
            let plan = move |done: usize| (MOST, mix(seed * 501 + done) % (MOST + 1));
            let drafts = planned(prompt.len(), &text, plan);
            let asked = request(&prompt, &params(), NEW_TOKENS as u64).drafts(drafts);
            assert_eq!(
                engine.generate(asked).unwrap().tokens,
                text,
                "{name}, {seed}"
            );
            let rows = recorder.steps().into_iter().flatten();
            for row in rows.filter(|row| row.drafts == MOST) {
                let end = (row.past / block + 1) * block;
                if row.past + row.run > end {
                    met.insert(row.committed().cmp(&end));
                }
            }
        }
        assert_eq!(
            met.len(),
            3,
            "{name}: rows over the end of a block kept {met:?}"
        );
    }
}

#[test]
fn the_end_of_the_context_and_of_the_request() {
    for name in ["qwen3_5-odd", "tiny-python", "lfm2-odd"] {
        let export = Export::of(name, CheckpointOption::Update(8));
        let (prompt, text) = texts(name, &export, 1).remove(0);
        let right = || planned(prompt.len(), &text, |_| (MOST, MOST));
        let engine = engine_of(&export, 1, &on(Speculation::Ngram));
        for tokens in 1..=2 * MOST + 3 {
            let asked = request(&prompt, &params(), tokens as u64).drafts(right());
            let found = engine.generate(asked).unwrap();
            assert_eq!(found.tokens, text[..tokens], "{name}");
            assert_eq!(found.reason, FinishReason::MaxNewTokens);
            let rounds = 1 + (tokens - 1).div_ceil(MOST + 1);
            assert!(found.stats.steps as usize <= rounds + prompt.len().div_ceil(16));
        }
        for room in [1, 2, 8, 9, 30, 31] {
            let length = prompt.len() + room;
            export.edit_config(|config| {
                config["model"]["context_length"] = length.into();
                config["search"]["max_length"] = length.into();
            });
            let ask = |engine: &Engine| {
                let asked = request(&prompt, &params(), NEW_TOKENS as u64);
                let asked = asked.drafts(right());
                engine.generate(asked).unwrap()
            };
            let plain = ask(&engine_of(&export, 1, &off().prefill_chunk(16)));
            let found = ask(&engine_of(&export, 1, &on(Speculation::Ngram)));
            assert_eq!(found.reason, FinishReason::ContextLength, "{name}, {room}");
            assert_eq!((&found.tokens, found.reason), (&plain.tokens, plain.reason));
            assert_eq!(found.tokens, text[..found.tokens.len()]);
        }
    }
}

/// Drafts of the end of a text, before it is there and where it is: the end is where it is without drafts, and nothing is run
/// behind a draft of it.
#[test]
fn the_end_of_the_text() {
    for name in ["qwen3_5-odd", "tiny-python"] {
        let export = Export::of(name, CheckpointOption::Update(8));
        let (prompt, text) = texts(name, &export, 1).remove(0);
        for at in [0, 3, 20] {
            // What is drawn there ends the text from now on.
            let end = text[at];
            let first = text.iter().position(|token| *token == end).unwrap();
            export.edit_config(|config| config["model"]["eos_token_id"] = end.into());
            for ignored in [true, false] {
                let engine = engine_of(&export, 1, &on(Speculation::Ngram));
                let known = text.clone();
                let length = prompt.len();
                let drafts = move |tokens: &[u32], most: usize| -> Vec<u32> {
                    let done = tokens.len() - length;
                    let right = known.iter().skip(done).take(mix(done) % 3).copied();
                    right.chain([end; MOST]).take(most).collect()
                };
                let asked = request(&prompt, &params(), NEW_TOKENS as u64);
                let asked = asked.ignore_eos(ignored).drafts(drafts);
                let found = engine.generate(asked).unwrap();
                let expected = if ignored { &text[..] } else { &text[..=first] };
                assert_eq!(found.tokens, expected, "{name}, {at}, {ignored}");
                let stats = &found.stats.speculation;
                let longest = if ignored { MOST as u64 } else { 3 };
                assert!(stats.proposed <= longest * stats.rounds, "{stats:?}");
                assert!(!ignored || stats.corrections > 0, "{stats:?}");
            }
        }
    }
}

/// Less room in a step than all drafts need.
#[test]
fn the_end_of_a_step() {
    let name = "qwen3_5-odd";
    for form in BOTH {
        let export = Export::of(name, form);
        let texts = texts(name, &export, 3);
        for budget in [3, 4, 9, 17] {
            for mode in [Speculation::Mtp, Speculation::Tree] {
                let options = on(mode).max_scheduled_tokens(budget);
                let engine = engine_of(&export, 6, &options);
                let asked = texts.iter().map(|(prompt, text)| {
                    let drafts = known(prompt, text, budget);
                    request(prompt, &params(), NEW_TOKENS as u64).drafts(drafts)
                });
                let found = engine.generate_all(asked).unwrap();
                for (found, (_, text)) in found.iter().zip(&texts) {
                    assert_eq!(
                        found.tokens, *text,
                        "{form:?}, {mode}, {budget} tokens a step"
                    );
                }
            }
        }
    }
}

fn known(prompt: &[u32], text: &[u32], seed: usize) -> KnownText {
    KnownText {
        prompt: prompt.len(),
        text: text.to_vec(),
        seed,
    }
}

/// The tokens of so many events, of which none is the last.
fn read(handle: &mut RequestHandle, events: usize) -> Vec<u32> {
    let events = handle.by_ref().take(events);
    let tokens = events.filter_map(|event| {
        let Event::Tokens { tokens, .. } = event else {
            return None;
        };
        Some(tokens)
    });
    tokens.flatten().collect()
}

/// Continues a copy of a state, and compares with what must follow it.
fn continues(what: &str, engine: &Engine, kept: Kept, prompt: &[u32], text: &[u32], seed: usize) {
    let whole = [prompt, text].concat();
    let seen = kept.tokens().len();
    assert_eq!(kept.tokens(), &whole[..seen], "{what}");
    let start = (seen + 1).max(prompt.len());
    if start >= whole.len() {
        return;
    }
    let asked = Request::from_ids(&whole[..start])
        .sampling(params())
        .max_new_tokens((whole.len() - start) as u64)
        .ignore_eos(true)
        .drafts(known(&whole[..start], &whole[start..], seed))
        .continue_from(kept);
    let found = engine.generate(asked).unwrap();
    assert_eq!(found.tokens, whole[start..], "{what}");
}

/// Requests that are cancelled, copied while they run and continued from the copy, beside others that just go on.
fn lives(name: &str, form: CheckpointOption, mode: Speculation, rounds: usize) {
    let export = Export::of(name, form);
    let texts = texts(name, &export, 4);
    let engine = engine_of(&export, 12, &on(mode));
    let (mut cancelled, mut copied) = (0, 0);
    for round in 0..rounds {
        let submit = |(at, (prompt, text)): (usize, &(Vec<u32>, Vec<u32>))| {
            let asked = request(prompt, &params(), NEW_TOKENS as u64);
            let asked = if mix(round + 77 * at).is_multiple_of(3) {
                asked
            } else {
                asked.drafts(known(prompt, text, round * 8 + at))
            };
            engine.submit(asked).unwrap()
        };
        let handles: Vec<_> = texts.iter().enumerate().map(submit).collect();
        // First every request meets its fate while the others run, then all are waited for.
        let mut fates = Vec::new();
        for (at, mut handle) in handles.into_iter().enumerate() {
            let draw = mix(round * 131 + at);
            let before = read(&mut handle, draw % 6);
            let kept = match draw / 16 % 3 {
                0 => {
                    handle.cancel();
                    None
                }
                // A request that has just ended has nothing to copy.
                1 => handle.fork().ok(),
                _ => None,
            };
            fates.push((before, kept, handle));
        }
        for (at, ((before, kept, handle), (prompt, text))) in
            fates.into_iter().zip(&texts).enumerate()
        {
            let what = format!("{name}, {form:?}, {mode}, round {round}, request {at}");
            let found = handle.wait().unwrap();
            let all = [before, found.tokens].concat();
            assert_eq!(all, text[..all.len()], "{what}");
            if found.reason == FinishReason::Cancelled {
                cancelled += 1;
            } else {
                assert_eq!(all.len(), text.len(), "{what}");
            }
            if let Some(kept) = kept {
                copied += 1;
                let twin = kept.fork().unwrap();
                continues(&what, &engine, kept, prompt, text, round);
                continues(&what, &engine, twin, prompt, text, round + 1);
            }
        }
    }
    let stats = engine.speculation_stats();
    assert!(stats.accepted > 50 && stats.corrections > 10, "{stats:?}");
    println!("{name}, {form:?}, {mode}: {cancelled} cancelled, {copied} copied");
    assert!(
        cancelled > 0 && copied > 0,
        "{cancelled} cancelled, {copied} copied"
    );
    assert_eq!(engine.unfinished(), 0);
}

/// Whoever hears that a request has ended finds all of it in the engine's totals.
#[test]
fn totals_hold_what_has_ended() {
    let export = Export::of("qwen3_5-odd", CheckpointOption::Update(8));
    let engine = engine_of(&export, 4, &on(Speculation::Mtp));
    let (mut rounds, mut steps) = (0, 0);
    for golden in golden::load("qwen3_5-odd").iter().cycle().take(60) {
        let ended = engine.generate(request(&golden.ids, &params(), 12));
        let (told, total) = (ended.unwrap().stats.speculation, engine.speculation_stats());
        rounds += told.rounds;
        steps += told.plain_steps;
        assert_eq!((total.rounds, total.plain_steps), (rounds, steps));
    }
}

#[test]
fn cancelled_and_copied_in_a_gated_delta_model() {
    lives("qwen3_5-odd", BOTH[0], Speculation::Mtp, 6);
    lives("qwen3_5-odd", BOTH[1], Speculation::Tree, 6);
}

#[test]
fn cancelled_and_copied_in_the_shipped_checkpoint() {
    lives("tiny-python", BOTH[1], Speculation::Tree, 3);
}

#[test]
fn cancelled_and_copied_in_a_convolution_model() {
    lives("lfm2-odd", BOTH[0], Speculation::Ngram, 6);
}
