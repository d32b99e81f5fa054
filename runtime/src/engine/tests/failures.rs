//! Every fallible call of every step fails once: nothing may be different afterwards, and the retry gives what the
//! undisturbed run gave.

use super::kept::copy;
use super::stand_in::{Bench, Law, Told, limits};
use crate::engine::copies::CopyCommand;
use crate::engine::{EngineOptions, Kept, KeptError};
use crate::grammar::Grammar;
use crate::ids::RequestId;
use crate::kv::KeysValues;
use crate::request::{Event, FinishReason, Request, Reuse};
use crate::sample::SamplingParams;
use crate::speculate::{DraftPolicy, Speculation, SpeculationStats};
use crate::txn::Snapshot;
use crate::txn::tests::fixture::{Form, bits};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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
    /// Of requests and kept states: hidden rows that the head has not read.
    unread: BTreeMap<RequestId, Vec<f32>>,
    governor: String,
    kept: Vec<(RequestId, Vec<u32>)>,
    evicted: u64,
}

fn visible(bench: &Bench) -> Visible {
    let core = &bench.core;
    let resident = || core.requests.iter().filter(|active| active.resident);
    let caches = resident().map(|active| core.composite.committed_cache(active.id).unwrap());
    let heads = resident().map(|active| core.composite.committed_head(active.id));
    let record = core.requests.iter().map(|active| {
        format!(
            "{:?} {} {} {:?} {:?} {:?} {} {} {:?} {:?} {:?}",
            active.tokens,
            active.committed,
            active.resident,
            active.cursor,
            active.cursor.allowed_now(),
            active.clock,
            active.waited,
            active.overtaken,
            active.proposal,
            active.continues.as_ref().map(Kept::id),
            active.reuse,
        )
    });
    let kept = || core.kept.iter();
    let ids = core.requests.iter().map(|active| active.id);
    let ids = ids.chain(kept().map(|state| state.id));
    let sources = format!("{:?}", core.sources);
    assert!(!sources.contains("staged: [("), "{sources}");
    Visible {
        unread: ids
            .map(|id| (id, core.sources.unread(id).to_vec()))
            .collect(),
        governor: format!("{:?}", core.governor),
        kept: kept()
            .map(|state| (state.id, state.tokens.to_vec()))
            .collect(),
        evicted: core.counters.read().evicted,
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

/// An engine that keeps a state, and two requests: one goes on from it, one starts from nothing.
fn continued(form: Form, policy: DraftPolicy) -> (Bench, Kept) {
    let options = EngineOptions::default()
        .draft_policy(policy)
        .speculation(Speculation::Mtp)
        .max_drafts(3)
        .prefill_chunk(5);
    let mut bench = Bench::new(form, &options);
    let first = bench.submit(&ask(&[5, 6, 7], 9).keep_state(true));
    bench.drain();
    let last = bench.events(first).pop();
    let Some(Event::Finished {
        kept: Some(kept), ..
    }) = last
    else {
        panic!("no state was kept: {last:?}");
    };
    let longer = [kept.tokens(), &[8, 9]].concat();
    bench.submit(&ask(&longer, 7).continue_from(kept.clone()));
    bench.submit(&ask(&PROMPT, 6));
    (bench, kept)
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

/// The text is held to a grammar that looks different at every place, and half of the drafts are not of it.
#[test]
fn a_failed_call_leaves_the_grammar_where_it_was() {
    let text = "0123+456,708-1";
    let grammar = Grammar::regex("[0-3]{4}[+][4-6]{3},[0-8]{3}-[12]");
    let constrained = || {
        let options = EngineOptions::default()
            .draft_policy(DraftPolicy::Fixed)
            .speculation(Speculation::Mtp)
            .max_drafts(3);
        let mut bench = Bench::new(Form::Update(4), &options);
        let known = limits().tokenizer.unwrap().encode(text, false).unwrap();
        let drafts = move |tokens: &[u32], most: usize| -> Vec<u32> {
            let done = tokens.len() - PROMPT.len();
            known.iter().skip(done).take(most).copied().collect()
        };
        bench.submit(&ask(&PROMPT, 40).grammar(grammar.clone()).drafts(drafts));
        bench.submit(&ask(&[7, 7, 7, 7], 40).grammar(grammar.clone()));
        bench
    };
    let mut undisturbed = constrained();
    let mut calls = Vec::new();
    while !undisturbed.core.requests.is_empty() {
        undisturbed.faults.arm(0..0);
        undisturbed.core.step().unwrap();
        calls.push(undisturbed.faults.calls());
    }
    let totals = &undisturbed.core.totals;
    assert!(totals.accepted > 0 && totals.forbidden > 0);
    let expected = undisturbed.told();
    let ends = expected.iter().map(|told| told.reason);
    assert!(ends.eq([Some(FinishReason::Grammar); 2]), "{expected:?}");
    for (at, calls) in calls.iter().enumerate() {
        for failing in 0..calls.len() {
            assert_eq!(disturbed(constrained(), at, failing), expected);
        }
    }
}

/// As often as a call of step `at` can fail, a fresh engine in which it does. What drafts cost is measured, so there are
/// as many calls as there are.
fn every_call_of(at: usize, bench: impl Fn() -> Bench) -> (BTreeSet<&'static str>, usize) {
    let mut seen = BTreeSet::new();
    for failing in 0.. {
        let mut bench = bench();
        bench.faults.arm(0..0);
        for _ in 0..at {
            bench.core.step().unwrap();
        }
        if bench.core.requests.is_empty() {
            return (seen, 0);
        }
        let before = visible(&bench);
        bench.faults.arm(failing..failing + 1);
        let failed = bench.core.step().is_err();
        let call = bench.faults.calls().pop().unwrap();
        if !failed {
            return (seen, failing);
        }
        assert_eq!(visible(&bench), before, "step {at}, {call} ({failing})");
        seen.insert(call);
        bench.faults.arm(0..0);
        bench.drain();
        let expected = |prompt: &[u32], count| {
            Law::Everything.decode(prompt, &SamplingParams::greedy(), count)
        };
        for told in bench.told().iter().filter(|told| !told.tokens.is_empty()) {
            let count = told.tokens.len();
            let longer = [&[5, 6, 7], &expected(&[5, 6, 7], 8)[..], &[8, 9]].concat();
            let texts = [expected(&longer, 7), expected(&PROMPT, 6)];
            assert!(texts.contains(&told.tokens), "{count} {told:?}");
        }
    }
    (seen, 0)
}

/// States that are taken over come back, and what the governor decided is decided again.
#[test]
fn a_failed_call_gives_back_what_was_taken_over() {
    for policy in [DraftPolicy::Fixed, DraftPolicy::Adaptive] {
        let mut seen = BTreeSet::new();
        for at in 0.. {
            let (names, calls) = every_call_of(at, || continued(Form::Update(4), policy).0);
            seen.extend(names);
            if calls == 0 {
                break;
            }
        }
        for name in [
            "run decoder",
            "start head",
            "run head",
            "accept row",
            "prepare",
        ] {
            assert!(seen.contains(name), "{policy:?}: {name} {seen:?}");
        }
    }
}

/// What a controller has learnt of steps, trials and confidences decides; a step that is discarded teaches it nothing.
#[test]
fn a_failed_call_leaves_no_trace_in_the_governor() {
    let mut failed = BTreeSet::new();
    let bench = || {
        let mut bench = adaptive();
        bench.submit(&ask(&PROMPT, 40));
        bench.submit(&ask(&[7, 7, 7, 7], 40));
        bench
    };
    for at in [1, 3, 5, 7, 9, 12, 15] {
        let mut bench = bench();
        for _ in 0..at {
            bench.core.step().unwrap();
        }
        for name in ["run head", "accept", "prepare"] {
            let before = visible(&bench);
            bench.faults.arm(0..0);
            bench.faults.always(name);
            if bench.core.step().is_err() {
                assert_eq!(visible(&bench), before, "step {at}, {name}");
                failed.insert(name);
            }
        }
    }
    assert_eq!(failed.len(), 3, "{failed:?}");
}

fn adaptive() -> Bench {
    let options = EngineOptions::default()
        .draft_policy(DraftPolicy::Adaptive)
        .speculation(Speculation::Mtp)
        .max_drafts(3);
    Bench::of(Form::Update(4), Law::Everything, &options)
}

/// A continuation whose step fails again and again does not lose the state: it is there for the next one.
#[test]
fn a_continuation_that_fails_leaves_the_state_it_was_given() {
    let (mut bench, kept) = continued(Form::Update(4), DraftPolicy::Fixed);
    bench.faults.always("prepare");
    let mut error = None;
    for _ in 0..3 {
        error = Some(bench.core.step().unwrap_err());
        assert!(kept.is_held());
    }
    bench.core.fail_all(&error.unwrap());
    bench.obey();
    assert!(kept.is_held() && bench.core.requests.is_empty());
    bench.compare();
    bench.faults.arm(0..0);
    let longer = [kept.tokens(), &[8, 9]].concat();
    let again = bench.submit(&ask(&longer, 7).continue_from(kept));
    bench.drain();
    let last = bench.events(again).pop();
    assert!(
        matches!(&last, Some(Event::Finished { usage, .. }) if usage.reuse == Reuse::Continued),
        "{last:?}"
    );
}

/// Every call of a copy fails once: nothing is different, and the copy can be made.
#[test]
fn copies_that_fail_leave_no_trace() {
    for form in [Form::Update(4), Form::State(4)] {
        let (mut bench, kept) = continued(form, DraftPolicy::Fixed);
        let (of, client) = (kept.id(), Arc::clone(&bench.client));
        let image = copy(&mut bench, |reply| CopyCommand::Image { id: of, reply }).unwrap();
        let fork = |bench: &mut Bench| {
            let client = Arc::clone(&client);
            copy(bench, |reply| CopyCommand::Fork {
                from: of,
                client,
                reply,
            })
        };
        let restore = |bench: &mut Bench| {
            let (client, tokens) = (Arc::clone(&client), kept.tokens().into());
            let image = Box::new(image.clone());
            copy(bench, |reply| CopyCommand::Restore {
                tokens,
                image,
                client,
                reply,
            })
        };
        let forked = every_copy(&mut bench, &fork);
        for name in [
            "fork cache",
            "fork head",
            "fork state",
            "copy state",
            "validate",
            "prepare",
        ] {
            assert!(forked.contains(name), "{name}: {forked:?}");
        }
        let restored = every_copy(&mut bench, &restore);
        for name in [
            "reserve cache",
            "reserve head",
            "reserve state",
            "prepare participant",
        ] {
            assert!(restored.contains(name), "{name}: {restored:?}");
        }
    }
}

fn every_copy(
    bench: &mut Bench,
    make: &dyn Fn(&mut Bench) -> Result<Kept, KeptError>,
) -> BTreeSet<&'static str> {
    let mut seen = BTreeSet::new();
    for failing in 0.. {
        let before = visible(bench);
        bench.faults.arm(failing..failing + 1);
        let made = make(bench);
        let call = bench.faults.calls().pop().unwrap();
        match made {
            Ok(made) => {
                drop(made);
                break;
            }
            Err(error) => {
                assert!(matches!(error, KeptError::Failed { .. }), "{error}");
                assert_eq!(visible(bench), before, "{call} ({failing})");
                seen.insert(call);
            }
        }
    }
    bench.faults.arm(0..0);
    bench.obey();
    bench.compare();
    seen
}
