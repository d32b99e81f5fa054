//! Every fallible call of every step fails once: nothing may be different afterwards, and the retry gives what the
//! undisturbed run gave.

use super::stand_in::{Bench, Law, Told};
use crate::engine::EngineOptions;
use crate::ids::RequestId;
use crate::kv::KeysValues;
use crate::request::Request;
use crate::sample::SamplingParams;
use crate::speculate::{DraftPolicy, Speculation, SpeculationStats};
use crate::txn::Snapshot;
use crate::txn::tests::fixture::{Form, bits};
use std::collections::BTreeMap;

const PROMPT: [u32; 3] = [1, 2, 3];

/// What callers and later steps can see of an engine.
#[derive(Debug, PartialEq)]
struct Visible {
    books: Snapshot,
    state: BTreeMap<RequestId, Vec<Vec<u32>>>,
    caches: Vec<Vec<KeysValues>>,
    requests: Vec<String>,
    totals: SpeculationStats,
    events: Vec<usize>,
}

fn visible(bench: &Bench) -> Visible {
    let core = &bench.core;
    let resident = || core.requests.iter().filter(|active| active.resident);
    let caches = resident().map(|active| core.composite.committed_cache(active.id).unwrap());
    let heads = resident().map(|active| core.composite.committed_head(active.id));
    let record = core.requests.iter().map(|active| {
        format!(
            "{:?} {} {} {:?} {:?} {} {}",
            active.tokens,
            active.committed,
            active.resident,
            active.cursor,
            active.clock,
            active.waited,
            active.overtaken
        )
    });
    Visible {
        books: core.composite.snapshot(),
        state: bits(&core.composite),
        caches: caches.chain(heads).collect(),
        requests: record.collect(),
        totals: core.totals.clone(),
        events: bench.waiting(),
    }
}

fn ask(prompt: &[u32], tokens: u64) -> Request {
    Request::from_ids(prompt).max_new_tokens(tokens)
}

/// Four requests for three places: one supplies drafts that know its text and err now and then, one has a long prompt, one
/// samples, one waits and leaves its state.
fn bench(form: Form, mode: Speculation, known: &[u32]) -> Bench {
    let options = EngineOptions::default()
        .draft_policy(DraftPolicy::Fixed)
        .speculation(mode)
        .max_drafts(3)
        .prefill_chunk(5);
    let mut bench = Bench::new(form, &options);
    let known = known.to_vec();
    let supplied = move |tokens: &[u32], most: usize| -> Vec<u32> {
        let done = tokens.len() - PROMPT.len();
        let err = |(i, token): (usize, &u32)| (token + u32::from(done % 3 == i)) % 24;
        let known = known.iter().skip(done).take(most).enumerate();
        known.map(err).collect()
    };
    bench.submit(&ask(&PROMPT, 12).drafts(supplied));
    bench.submit(&ask(&[4, 5, 6, 4, 5, 6, 4, 5, 6, 4, 5], 7));
    bench.submit(&ask(&[7, 7, 7, 7], 5).sampling(SamplingParams::sampled(0.8).top_k(6).seed(3)));
    bench.submit(&ask(&[9, 8], 6).keep_state(true));
    bench
}

/// Runs to step `at`, lets call `failing` of it fail, and compares everything. Returns what callers were told at the end.
fn disturbed(mut bench: Bench, at: usize, failing: usize) -> Vec<Told> {
    bench.faults.arm(0..0);
    for _ in 0..at {
        bench.core.step().unwrap();
    }
    let before = visible(&bench);
    bench.faults.arm(failing..failing + 1);
    let error = bench.core.step().unwrap_err();
    let call = bench.faults.calls().pop();
    assert!(error.to_string().contains("failed on purpose"), "{error}");
    assert_eq!(visible(&bench), before, "step {at}, {call:?} ({failing})");
    bench.faults.arm(0..0);
    bench.drain();
    bench.told()
}

fn every_call_fails_once(form: Form, mode: Speculation) {
    let known = Law::Everything.decode(&PROMPT, &SamplingParams::greedy(), 12);
    let mut undisturbed = bench(form, mode, &known);
    let mut calls = Vec::new();
    while !undisturbed.core.requests.is_empty() {
        undisturbed.faults.arm(0..0);
        undisturbed.core.step().unwrap();
        undisturbed.compare();
        calls.push(undisturbed.faults.calls());
    }
    let accepted = undisturbed.core.totals.accepted;
    assert!(accepted > 0 && accepted < undisturbed.core.totals.evaluated);
    let expected = undisturbed.told();
    assert_eq!(expected[0].tokens, known);
    assert!(
        expected
            .iter()
            .all(|told| told.reason.is_some() && !told.text.is_empty())
    );
    let names = [
        "reserve cache",
        "reserve state",
        "start decoder",
        "run decoder",
        "accept row",
        "accept",
    ];
    let names = names.into_iter().chain([
        "validate participant",
        "validate",
        "prepare participant",
        "prepare",
    ]);
    for name in names.chain((mode == Speculation::Mtp).then_some("run head")) {
        assert!(calls.iter().flatten().any(|call| *call == name), "{name}");
    }
    for (at, calls) in calls.iter().enumerate() {
        for (failing, call) in calls.iter().enumerate() {
            let told = disturbed(bench(form, mode, &known), at, failing);
            assert_eq!(told, expected, "step {at}, {} ({failing})", call);
        }
    }
}

#[test]
fn a_failed_call_leaves_no_trace_with_transitions_and_a_head() {
    every_call_fails_once(Form::Update(4), Speculation::Mtp);
}

#[test]
fn a_failed_call_leaves_no_trace_with_states_and_a_head() {
    every_call_fails_once(Form::State(4), Speculation::Mtp);
}

#[test]
fn a_failed_call_leaves_no_trace_with_transitions_and_lookup() {
    every_call_fails_once(Form::Update(4), Speculation::Ngram);
}

#[test]
fn a_failed_call_leaves_no_trace_with_states_and_lookup() {
    every_call_fails_once(Form::State(4), Speculation::Ngram);
}
