//! Sources that are always right, never, or at times; that propose what cannot be run, that fail and that panic.

use super::stand_in::{Bench, Law, Told};
use crate::engine::EngineOptions;
use crate::engine::draft::Governor;
use crate::request::{Event, Request};
use crate::sample::SamplingParams;
use crate::speculate::{
    DraftPolicy, DraftSource, DraftTree, Source, Speculation, SpeculationStats,
};
use crate::txn::tests::fixture::Form;
use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};

const PROMPT: [u32; 3] = [1, 2, 3];
const TOKENS: usize = 40;

fn text() -> Vec<u32> {
    Law::Everything.decode(&PROMPT, &SamplingParams::greedy(), TOKENS)
}

fn options(mode: Speculation) -> EngineOptions {
    EngineOptions::default()
        .speculation(mode)
        .draft_policy(DraftPolicy::Fixed)
        .max_drafts(5)
}

fn run(options: &EngineOptions, source: impl DraftSource + 'static) -> (Told, SpeculationStats) {
    let mut bench = Bench::new(Form::Update(6), options);
    let request = Request::from_ids(PROMPT).max_new_tokens(TOKENS as u64);
    bench.submit(&request.drafts(source));
    while !bench.core.requests.is_empty() {
        bench.core.step().unwrap();
        bench.compare();
    }
    (bench.told().remove(0), bench.core.totals.clone())
}

#[test]
fn always_right_reaches_the_capture_limit() {
    let known = text();
    let right = move |tokens: &[u32], most: usize| -> Vec<u32> {
        known
            .iter()
            .skip(tokens.len() - PROMPT.len())
            .take(most)
            .copied()
            .collect()
    };
    let (told, stats) = run(&options(Speculation::Ngram), right);
    assert_eq!(told.tokens, text());
    assert_eq!(stats.accepted, stats.proposed);
    assert_eq!(
        stats.by_accepted.len(),
        6,
        "rounds that kept 5 drafts: {stats:?}"
    );
    assert_eq!(stats.bonus, stats.rounds);
    assert_eq!(told.stats.steps, 1 + (TOKENS as u64 - 1).div_ceil(6));
}

#[test]
fn never_right_changes_nothing() {
    let known = text();
    let wrong = move |tokens: &[u32], most: usize| -> Vec<u32> {
        let next = known.iter().skip(tokens.len() - PROMPT.len()).take(most);
        next.map(|token| (token + 1) % 24).collect()
    };
    let (told, stats) = run(&options(Speculation::Ngram), wrong);
    assert_eq!(told.tokens, text());
    assert_eq!((stats.accepted, stats.corrections), (0, stats.rounds));
    assert_eq!(stats.evaluated, stats.rounds);
}

/// The controller gives a source that is never right up, and tries it now and then.
#[test]
fn never_right_is_seldom_asked() {
    let options = EngineOptions::default()
        .speculation(Speculation::Ngram)
        .draft_policy(DraftPolicy::Adaptive);
    let count = 200;
    let tokens = Law::Everything.decode(&PROMPT, &SamplingParams::greedy(), count);
    let known = tokens.clone();
    let wrong = move |tokens: &[u32], most: usize| -> Vec<u32> {
        let next = known.iter().skip(tokens.len() - PROMPT.len()).take(most);
        next.map(|token| (token + 1) % 24).collect()
    };
    let mut bench = Bench::new(Form::Update(6), &options);
    let request = Request::from_ids(PROMPT).max_new_tokens(count as u64);
    bench.submit(&request.drafts(wrong));
    bench.drain();
    assert_eq!(bench.told()[0].tokens, tokens);
    let stats = &bench.core.totals;
    assert!(
        stats.rounds >= 1 && stats.rounds < count as u64 / 4,
        "{stats:?}"
    );
}

#[test]
fn tokens_that_do_not_exist_are_cut_off() {
    let known = text();
    let odd = move |tokens: &[u32], most: usize| -> Vec<u32> {
        let next = known.iter().skip(tokens.len() - PROMPT.len());
        let next = next.take(2).copied();
        next.chain([24, u32::MAX, 3]).take(most).collect()
    };
    let (told, stats) = run(&options(Speculation::Ngram), odd);
    assert_eq!(told.tokens, text());
    assert!(
        stats.proposed <= 2 * stats.rounds && stats.accepted == stats.proposed,
        "{stats:?}"
    );
    let [fallback] = &stats.fallbacks[..] else {
        panic!("{stats:?}")
    };
    assert!(
        fallback.reason.contains("not in the vocabulary"),
        "{fallback:?}"
    );
    // The last drafts are cut to what the request can still use.
    assert!(
        (stats.rounds - 1..=stats.rounds).contains(&fallback.count),
        "{stats:?}"
    );
    assert_eq!(told.stats.speculation.fallbacks, stats.fallbacks);
}

/// Fails, or panics, at its fourth call; is right before.
struct Failing {
    known: Vec<u32>,
    calls: AtomicUsize,
    panics: bool,
}

impl DraftSource for Failing {
    fn propose(&self, tokens: &[u32], most: usize) -> Vec<u32> {
        let next = self.known.iter().skip(tokens.len() - PROMPT.len());
        next.take(most.min(2)).copied().collect()
    }

    fn propose_tree(
        &self,
        tokens: &[u32],
        most: usize,
    ) -> Result<DraftTree, Box<dyn Error + Send + Sync>> {
        match self.calls.fetch_add(1, Ordering::Relaxed) {
            3 if self.panics => panic!("on purpose"),
            3 => Err("no more guesses".into()),
            calls => {
                assert!(calls < 4, "a source that failed is asked again");
                Ok(DraftTree::chain(self.propose(tokens, most)))
            }
        }
    }
}

#[test]
fn a_source_that_fails_is_left_alone_with_its_reason() {
    for (panics, reason) in [(false, "no more guesses"), (true, "panicked")] {
        let source = Failing {
            known: text(),
            calls: AtomicUsize::new(0),
            panics,
        };
        let (told, totals) = run(&options(Speculation::Ngram), source);
        assert_eq!(told.tokens, text());
        let stats = &told.stats.speculation;
        assert_eq!(totals.fallbacks, stats.fallbacks);
        let [fallback] = &stats.fallbacks[..] else {
            panic!("{stats:?}")
        };
        assert!(fallback.reason.contains(reason), "{fallback:?}");
        assert_eq!(fallback.count, 1);
        assert!(stats.accepted >= 6, "{stats:?}");
    }
}

/// While the caller's drafts are used the head reads nothing; when it is needed it reads all that it missed.
#[test]
fn a_head_catches_up_with_what_it_did_not_read() {
    let source = Failing {
        known: text(),
        calls: AtomicUsize::new(0),
        panics: false,
    };
    let (told, stats) = run(&options(Speculation::Mtp), source);
    assert_eq!(told.tokens, text());
    let rounds = |source| stats.by_source.iter().find(|of| of.source == source);
    assert_eq!(rounds(Source::Caller).unwrap().rounds, 3, "{stats:?}");
    assert!(rounds(Source::Head).unwrap().rounds > 3, "{stats:?}");
    // The prompt, then drafts from the fourth call on.
    assert!(stats.draft_passes < 5 * stats.rounds, "{stats:?}");
}

/// A head whose every run fails from some call on: one step is discarded, then the engine goes on without the head.
#[test]
fn a_head_that_keeps_failing_is_left_alone() {
    let mut bench = Bench::new(Form::Update(6), &options(Speculation::Mtp));
    bench.submit(&Request::from_ids(PROMPT).max_new_tokens(TOKENS as u64));
    for _ in 0..4 {
        bench.core.step().unwrap();
    }
    bench.faults.always("run head");
    assert!(bench.core.step().is_err());
    bench.compare();
    while !bench.core.requests.is_empty() {
        bench.core.step().unwrap();
    }
    let told = bench.told().remove(0);
    assert_eq!(told.tokens, text());
    let stats = &told.stats.speculation;
    assert!(
        stats.fallbacks[0].reason.contains("head: it failed"),
        "{stats:?}"
    );
    assert!(stats.rounds >= 1 && stats.plain_steps > 1, "{stats:?}");
}

/// A head that is never right is told from one that is merely bad, and left alone.
#[test]
fn a_head_that_agrees_with_nothing_is_left_alone() {
    let mut bench = Bench::of(Form::Update(6), Law::Strangers, &options(Speculation::Mtp));
    let prompt = [5, 6];
    bench.submit(&Request::from_ids(prompt).max_new_tokens(150));
    bench.drain();
    let told = bench.told().remove(0);
    let expected = Law::Strangers.decode(&prompt, &SamplingParams::greedy(), 150);
    assert_eq!(told.tokens, expected);
    let stats = &told.stats.speculation;
    assert!(
        stats.fallbacks[0].reason.contains("--mtp-hidden"),
        "{stats:?}"
    );
    assert!(stats.rounds < 40 && stats.plain_steps > 100, "{stats:?}");
}

/// Requests of one scope find each other's texts; others do not.
#[test]
fn texts_are_shared_within_a_scope_only() {
    let accepted = |scopes: [Option<&str>; 2]| {
        let mut bench = Bench::new(Form::Update(6), &options(Speculation::Ngram));
        for scope in scopes {
            let request = Request::from_ids(PROMPT).max_new_tokens(TOKENS as u64);
            let request = match scope {
                Some(scope) => request.lookup_scope(scope),
                None => request,
            };
            bench.submit(&request);
            bench.drain();
        }
        let told = bench.told();
        assert_eq!(told[1].tokens, text());
        told[1].stats.speculation.accepted
    };
    let shared = accepted([Some("a"), Some("a")]);
    assert!(shared >= 25, "{shared}");
    let alone = accepted([None, None]);
    assert!(alone < shared, "{alone}");
    assert_eq!(accepted([Some("a"), Some("b")]), alone);
    assert_eq!(accepted([Some("a"), None]), alone);
}

/// What a state was looked up with goes with it: nothing is left of requests that have ended, kept states included.
#[test]
fn ended_requests_leave_no_index() {
    let mut bench = Bench::new(Form::Update(6), &options(Speculation::Ngram));
    let first = Request::from_ids(PROMPT).max_new_tokens(8);
    let first = bench.submit(&first.keep_state(true));
    bench.drain();
    let ends = bench.events(first).into_iter();
    let mut kept = ends.filter_map(|event| match event {
        Event::Finished { kept, .. } => kept,
        Event::Tokens { .. } => None,
    });
    let kept = kept.next().unwrap();
    assert!(bench.core.sources.bytes() > 0);
    let prompt = [kept.tokens(), &[7, 8]].concat();
    bench.submit(
        &Request::from_ids(prompt)
            .max_new_tokens(8)
            .continue_from(kept),
    );
    bench.drain();
    assert_eq!(bench.core.sources.bytes(), 0);
}

/// Where trees are allowed and a chain is chosen, a chain is drafted, which tells how sure it is and stops where it is not.
#[test]
fn a_chain_among_trees_is_a_chain() {
    let mut bench = Bench::new(Form::Update(6), &options(Speculation::Tree));
    let mut chains = bench.core.speculation.clone();
    chains.width = 1;
    bench.core.governor = Governor::new(chains, (8, 64), None);
    bench.submit(&Request::from_ids(PROMPT).max_new_tokens(TOKENS as u64));
    bench.core.step().unwrap();
    let proposal = &bench.core.requests[0].proposal;
    assert!(proposal.tree.is_chain() && proposal.tree.len() > 1);
    assert_eq!(proposal.confidences.len(), proposal.tree.len());
}
