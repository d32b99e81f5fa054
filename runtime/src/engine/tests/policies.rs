//! What the engine gives up, how soon, and what it says then.

use super::stand_in::{BLOCKS, Bench, Law, SLOTS};
use crate::device::{Buffer, Device, DeviceError, ElementType, HostDevice};
use crate::engine::EngineOptions;
use crate::engine::draft::Measured;
use crate::request::Request;
use crate::sample::SamplingParams;
use crate::speculate::{
    DraftPolicy, DraftSource, DraftTree, Source, Speculation, SpeculationStats,
};
use crate::txn::tests::fixture::Form;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const PROMPT: [u32; 3] = [1, 2, 3];
/// Tokens of one request.
const TOKENS: usize = 220;

fn options(mode: Speculation, policy: DraftPolicy) -> EngineOptions {
    EngineOptions::default()
        .speculation(mode)
        .draft_policy(policy)
}

fn text() -> Vec<u32> {
    Law::Everything.decode(&PROMPT, &SamplingParams::greedy(), TOKENS)
}

/// What a source proposes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// A chain without a right token.
    Chain,
    /// Four first tokens, none of them right, and more below.
    Tree,
    /// Nothing.
    Nothing,
}

/// Never right, and counts how often it is asked.
struct Wrong {
    kind: Kind,
    text: Vec<u32>,
    asked: Arc<AtomicUsize>,
}

impl DraftSource for Wrong {
    fn propose(&self, tokens: &[u32], most: usize) -> Vec<u32> {
        let next = self.text.iter().skip(tokens.len() - PROMPT.len());
        next.take(most).map(|token| (token + 1) % 24).collect()
    }

    fn propose_tree(
        &self,
        tokens: &[u32],
        most: usize,
    ) -> Result<DraftTree, Box<dyn Error + Send + Sync>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let wrong = self.propose(tokens, most);
        let mut tree = DraftTree::default();
        if self.kind == Kind::Nothing {
            return Ok(tree);
        }
        let mut at = None;
        for (depth, token) in wrong.iter().enumerate() {
            at = Some(tree.push(at, *token)?);
            // Branches come before the rest of the spine, so that no bound of nodes cuts them all.
            if depth == 0 && self.kind == Kind::Tree {
                for other in 1..4 {
                    let beside = tree.push(None, (token + other) % 24)?;
                    tree.push(Some(beside), *token)?;
                }
            }
        }
        Ok(tree)
    }
}

/// A machine on which a token and a draft cost a tenth of a step.
fn price(measured: &mut Measured) {
    let tenths = |count: usize| Duration::from_micros(10) * u32::try_from(count).unwrap();
    measured.step = tenths(10 + measured.tokens);
    for drafted in &mut measured.drafting {
        drafted.time = tenths(1 + drafted.drafts * drafted.requests);
    }
}

/// Runs requests one after the other: how often sources were asked, and the counts, before the last five and of all.
fn settle(mode: Speculation, kind: Kind) -> [(usize, SpeculationStats); 2] {
    let mut bench = Bench::new(Form::Update(6), &options(mode, DraftPolicy::Adaptive));
    bench.core.price = Some(price);
    let asked = Arc::new(AtomicUsize::new(0));
    let mut before = (0, SpeculationStats::default());
    for request in 0..8 {
        let source = Wrong {
            kind,
            text: text(),
            asked: Arc::clone(&asked),
        };
        let asks = Request::from_ids(PROMPT).max_new_tokens(TOKENS as u64);
        bench.submit(&asks.drafts(source));
        bench.drain();
        if request == 2 {
            before = (asked.load(Ordering::Relaxed), bench.core.totals.clone());
        }
    }
    assert!(bench.told().iter().all(|told| told.tokens == text()));
    let all = (asked.load(Ordering::Relaxed), bench.core.totals.clone());
    [before, all]
}

/// Settled, at most 3 steps in 100 draft: what wrong drafts cost is a part of that.
#[test]
fn never_right_is_hardly_asked_once_that_is_known() {
    for (mode, kind) in [
        (Speculation::Ngram, Kind::Chain),
        (Speculation::Ngram, Kind::Tree),
        (Speculation::Mtp, Kind::Tree),
        (Speculation::Tree, Kind::Chain),
        (Speculation::Tree, Kind::Tree),
        (Speculation::Tree, Kind::Nothing),
        (Speculation::Ngram, Kind::Nothing),
    ] {
        let [(asked, before), (all, after)] = settle(mode, kind);
        let steps = after.target_passes - before.target_passes;
        let rounds = after.rounds - before.rounds;
        let what = format!(
            "{mode}, {kind:?}: {rounds} and {} of {steps} steps",
            all - asked
        );
        assert!(steps >= 5 * TOKENS as u64, "{what}");
        assert!(rounds * 100 <= steps * 3, "{what}");
        assert!((all - asked) * 100 <= TOKENS * 5 * 3, "{what}");
        assert!(
            all > 0 && (after.rounds == 0) == (kind == Kind::Nothing),
            "{what}"
        );
    }
}

/// Where no trees are drafted, callers' trees are cut to the first guess of each token.
#[test]
fn without_trees_a_callers_branches_are_cut() {
    for mode in [Speculation::Ngram, Speculation::Mtp] {
        let mut bench = Bench::new(Form::Update(6), &options(mode, DraftPolicy::Fixed));
        let asked = Arc::default();
        let (kind, text) = (Kind::Tree, text());
        let source = Wrong { kind, text, asked };
        let asks = Request::from_ids(PROMPT).max_new_tokens(40);
        bench.submit(&asks.drafts(source));
        bench.drain();
        let stats = &bench.core.totals;
        assert!(
            stats.rounds > 20 && stats.branched == 0,
            "{mode}: {stats:?}"
        );
        assert!(stats.proposed <= 3 * stats.rounds, "{mode}: {stats:?}");
        let [fallback] = &stats.fallbacks[..] else {
            panic!("{mode}: {stats:?}")
        };
        assert!(fallback.reason.contains("trees"), "{mode}: {fallback:?}");
        assert_eq!(fallback.count, stats.rounds, "{mode}");
        let told = bench.told().remove(0);
        assert_eq!(told.stats.speculation.fallbacks, stats.fallbacks);
    }
}

/// Where trees are run and a chain is chosen, or chains are all that a caller makes, nothing is given up.
#[test]
fn what_is_run_as_it_was_made_is_no_fallback() {
    for (mode, kind) in [
        (Speculation::Ngram, Kind::Chain),
        (Speculation::Tree, Kind::Tree),
        (Speculation::Auto, Kind::Tree),
    ] {
        for policy in [DraftPolicy::Fixed, DraftPolicy::Adaptive] {
            let mut bench = Bench::new(Form::Update(6), &options(mode, policy));
            let (text, asked) = (text(), Arc::default());
            let asks = Request::from_ids(PROMPT).max_new_tokens(100);
            bench.submit(&asks.drafts(Wrong { kind, text, asked }));
            bench.drain();
            assert!(bench.core.totals.rounds > 0, "{mode}, {policy}");
            assert_eq!(bench.core.totals.fallbacks, [], "{mode}, {policy}");
        }
    }
}

/// Memory that only another processor can reach.
#[derive(Debug)]
struct Distant;

impl Device for Distant {
    fn name(&self) -> &'static str {
        "distant"
    }

    fn allocate(&self, element: ElementType, shape: &[usize]) -> Result<Buffer, DeviceError> {
        HostDevice.allocate(element, shape)
    }

    fn host_visible(&self) -> bool {
        false
    }
}

/// Branches copy a part of the cache. Where that cannot be, there are none, and the engine says so.
#[test]
fn out_of_reach_trees_are_chains() {
    for policy in [DraftPolicy::Fixed, DraftPolicy::Adaptive] {
        let options = options(Speculation::Tree, policy);
        let device = Arc::new(Distant);
        let mut bench = Bench::on(
            Form::Update(6),
            Law::Everything,
            &options,
            device,
            (SLOTS, BLOCKS),
        );
        let reason = bench.core.speculation.reason.clone();
        assert!(reason.is_some_and(|reason| reason.contains("cannot reach")));
        let known = text();
        let source = Wrong {
            kind: Kind::Tree,
            text: known.clone(),
            asked: Arc::default(),
        };
        let asks = || Request::from_ids(PROMPT).max_new_tokens(60);
        bench.submit(&asks());
        bench.submit(&asks().drafts(source));
        while !bench.core.requests.is_empty() {
            assert!(
                bench
                    .core
                    .requests
                    .iter()
                    .all(|active| active.proposal.tree.is_chain())
            );
            bench.core.step().unwrap();
            bench.compare();
        }
        assert!(bench.told().iter().all(|told| told.tokens == known[..60]));
        let stats = &bench.core.totals;
        assert!(stats.rounds > 0 && stats.branched == 0, "{stats:?}");
    }
}

/// A head that agrees with nothing is found out in the first rounds, although its drafts are not worth making.
#[test]
fn a_wrongly_wired_head_is_found_out_soon() {
    let adaptive = options(Speculation::Mtp, DraftPolicy::Adaptive);
    let mut bench = Bench::of(Form::Update(6), Law::Strangers, &adaptive);
    let prompt = [5, 6];
    bench.submit(&Request::from_ids(prompt).max_new_tokens(60));
    bench.drain();
    let told = bench.told().remove(0);
    let expected = Law::Strangers.decode(&prompt, &SamplingParams::greedy(), 60);
    assert_eq!(told.tokens, expected);
    let stats = &told.stats.speculation;
    assert_eq!(stats.fallbacks.len(), 1, "{stats:?}");
    assert!(
        stats.fallbacks[0].reason.contains("--mtp-hidden"),
        "{stats:?}"
    );
    assert!(stats.rounds < 40, "{stats:?}");
    assert_eq!(bench.core.totals.fallbacks, stats.fallbacks);
}

/// A head whose logits are no numbers drafts nothing. It is not run for ever.
#[test]
fn a_head_without_numbers_is_left_alone() {
    for mode in [Speculation::Mtp, Speculation::Tree, Speculation::Auto] {
        for policy in [DraftPolicy::Fixed, DraftPolicy::Adaptive] {
            let mut bench = Bench::of(Form::Update(6), Law::Broken, &options(mode, policy));
            let prompt = [5, 6];
            bench.submit(&Request::from_ids(prompt).max_new_tokens(60));
            bench.drain();
            let told = bench.told().remove(0);
            let expected = Law::Broken.decode(&prompt, &SamplingParams::greedy(), 60);
            assert_eq!(told.tokens, expected);
            let stats = &told.stats.speculation;
            let [fallback] = &stats.fallbacks[..] else {
                panic!("{mode}, {policy}: {stats:?}")
            };
            assert!(fallback.reason.contains("finite"), "{fallback:?}");
            assert!(stats.draft_passes < 12, "{mode}, {policy}: {stats:?}");
            let mut sources = stats.by_source.iter();
            assert!(sources.all(|of| of.source == Source::Lookup), "{stats:?}");
        }
    }
}

/// A head is not judged by requests that nothing can be drawn for: neither where what it reads is no number, nor where the
/// decoder's logits are none.
#[test]
fn requests_without_numbers_do_not_take_the_head_from_others() {
    for mode in [Speculation::Mtp, Speculation::Tree, Speculation::Auto] {
        for policy in [DraftPolicy::Fixed, DraftPolicy::Adaptive] {
            let mut bench = Bench::of(Form::Update(6), Law::Deaf, &options(mode, policy));
            for first in [0, 1] {
                bench.submit(&Request::from_ids([first, 2, 3]).max_new_tokens(60));
                bench.drain();
            }
            assert_eq!(bench.told()[1].tokens, text()[..60]);
            assert_eq!(bench.core.totals.fallbacks, [], "{mode}, {policy}");
            assert!(bench.core.sources.has(Source::Head), "{mode}, {policy}");

            let law = Law::BrokenUntil(PROMPT.len());
            let mut bench = Bench::of(Form::Update(6), law, &options(mode, policy));
            for _ in 0..20 {
                bench.submit(&Request::from_ids(PROMPT).max_new_tokens(60));
                bench.drain();
            }
            assert!(bench.core.sources.has(Source::Head), "{mode}, {policy}");
        }
    }
}

/// A head leaves room for lookups behind its drafts, also where the number of drafts is fixed.
#[test]
fn lookups_go_on_behind_a_head() {
    let auto = options(Speculation::Auto, DraftPolicy::Fixed).max_drafts(5);
    let mut bench = Bench::of(Form::Update(6), Law::LastToken, &auto);
    let prompt = [5, 6];
    bench.submit(&Request::from_ids(prompt).max_new_tokens(120));
    bench.drain();
    let told = bench.told().remove(0);
    let expected = Law::LastToken.decode(&prompt, &SamplingParams::greedy(), 120);
    assert_eq!(told.tokens, expected);
    let stats = &told.stats.speculation;
    // Three passes of the head for three drafts; what the text repeats makes five of them.
    assert!(stats.draft_passes <= 3 * (stats.rounds + 1), "{stats:?}");
    assert!(
        stats.by_accepted.get(5).is_some_and(|full| *full > 5),
        "{stats:?}"
    );
    let [head, lookup] = &stats.by_source[..] else {
        panic!("{stats:?}")
    };
    assert_eq!((head.source, lookup.source), (Source::Head, Source::Lookup));
    assert_eq!(head.proposed + lookup.proposed, stats.proposed);
    assert_eq!(head.evaluated + lookup.evaluated, stats.evaluated);
    assert_eq!(head.accepted + lookup.accepted, stats.accepted);
    // Of five drafts the head makes three; it knows the text, and so does what it repeats.
    assert!(head.proposed <= 3 * head.rounds, "{stats:?}");
    assert!(
        lookup.rounds <= head.rounds && lookup.accepted > 10,
        "{stats:?}"
    );
}

/// Behind a stop string nothing is drafted: the request would end before it is looked at.
#[test]
fn nothing_is_drafted_behind_a_stop_string() {
    let plain = {
        let mut bench = Bench::new(
            Form::Update(6),
            &options(Speculation::Off, DraftPolicy::Fixed),
        );
        bench.submit(&Request::from_ids(PROMPT).max_new_tokens(60));
        bench.drain();
        bench.told().remove(0)
    };
    let chars: Vec<char> = plain.text.chars().collect();
    let mut met = 0;
    for at in 4..chars.len() - 2 {
        let stop: String = chars[at..at + 2].iter().collect();
        if plain.text.find(&stop) != Some(chars[..at].iter().collect::<String>().len()) {
            continue;
        }
        met += 1;
        let known = text();
        let right = move |tokens: &[u32], most: usize| -> Vec<u32> {
            let next = known.iter().skip(tokens.len() - PROMPT.len());
            next.take(most).copied().collect()
        };
        let fixed = options(Speculation::Ngram, DraftPolicy::Fixed).max_drafts(5);
        let mut bench = Bench::new(Form::Update(6), &fixed);
        let asks = Request::from_ids(PROMPT).max_new_tokens(60);
        bench.submit(&asks.stop(stop).drafts(right));
        bench.drain();
        let told = bench.told().remove(0);
        assert_eq!(told.tokens, plain.tokens[..told.tokens.len()]);
        let stats = &told.stats.speculation;
        let drawn = stats.proposed + stats.rounds + stats.plain_steps;
        assert!(drawn <= told.tokens.len() as u64 + 1, "{stats:?}, {told:?}");
    }
    assert!(met > 5, "{met} stop strings");
}
