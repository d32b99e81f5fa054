//! Requests that end inside drafts that are right.

use super::stand_in::{Bench, Law, Told, limits};
use crate::engine::EngineOptions;
use crate::request::{Event, FinishReason, ModelLimits, Request};
use crate::sample::SamplingParams;
use crate::speculate::{DraftPolicy, DraftSource, DraftTree, Speculation};
use crate::txn::tests::fixture::Form;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const PROMPT: [u32; 3] = [1, 2, 3];
const LENGTH: usize = 18;

/// What a request is told that ends with `eos`; `known` is what it drafts from, if it does.
fn run(law: Law, eos: u32, known: Option<&[u32]>) -> Told {
    let options = EngineOptions::default()
        .draft_policy(DraftPolicy::Fixed)
        .speculation(Speculation::Ngram)
        .max_drafts(7);
    let mut bench = Bench::of(Form::Update(8), law, &options);
    let mut request = Request::from_ids(PROMPT).max_new_tokens(LENGTH as u64);
    let known = known.map(<[u32]>::to_vec);
    request = request.drafts(move |tokens: &[u32], most: usize| -> Vec<u32> {
        let known = known.iter().flatten().copied();
        known.skip(tokens.len() - PROMPT.len()).take(most).collect()
    });
    let limits = ModelLimits {
        eos: vec![eos],
        ..limits()
    };
    bench.submit_within(&request, &limits);
    while !bench.core.requests.is_empty() {
        bench.core.step().unwrap();
        bench.compare();
    }
    bench.told().remove(0)
}

/// The text, and the places of tokens that were not there before.
fn text() -> (Vec<u32>, Vec<usize>) {
    let text = Law::Everything.decode(&PROMPT, &SamplingParams::greedy(), LENGTH);
    let new = |end: &usize| !text[..*end].contains(&text[*end]);
    let ends: Vec<usize> = (0..LENGTH - 1).filter(new).collect();
    assert!(ends.len() > 5, "{text:?}");
    (text, ends)
}

/// Every row that draws gives one token and the drafts that it keeps, the last one included.
#[test]
fn drafts_beyond_the_end_count_for_nothing() {
    let (text, ends) = text();
    for end in ends {
        let told = run(Law::Everything, text[end], Some(&text));
        assert_eq!(told.tokens, text[..=end]);
        assert_eq!(told.reason, Some(FinishReason::Eos));
        let stats = &told.stats.speculation;
        let rows = stats.rounds + stats.plain_steps;
        assert_eq!(stats.accepted + rows, end as u64 + 1, "{stats:?}");
        let kept: u64 = stats.by_position.iter().map(|(_, kept)| kept).sum();
        assert_eq!(kept, stats.accepted);
        assert_eq!((stats.evaluated, stats.corrections), (stats.accepted, 0));
    }
}

/// Logits that are no numbers fail a request exactly where decoding one by one would come to them: not beyond its end, and
/// not before what they follow was told.
#[test]
fn what_drafts_run_into_fails_no_sooner_than_decoding() {
    let (text, ends) = text();
    let end = ends[4];
    let mut failed = 0;
    for good in PROMPT.len() - 1..PROMPT.len() + LENGTH {
        let of = |known| run(Law::Until(good), text[end], known);
        let (drafted, plain) = (of(Some(&text[..])), of(None));
        assert_eq!(drafted.tokens, plain.tokens, "{good}");
        assert_eq!((drafted.text, drafted.reason), (plain.text, plain.reason));
        failed += usize::from(drafted.reason == Some(FinishReason::Failed));
        if drafted.reason == Some(FinishReason::Eos) {
            assert_eq!(drafted.tokens, text[..=end]);
        }
    }
    assert_eq!(failed, end + 1, "once for every token that it needs");
}

/// The same with the end in a branch: the row that holds what is kept wins.
#[test]
fn an_end_in_a_branch_keeps_what_the_branch_holds() {
    let (text, ends) = text();
    for end in ends.into_iter().filter(|end| *end > 1) {
        let known = text.clone();
        let options = EngineOptions::default()
            .speculation(Speculation::Tree)
            .draft_policy(DraftPolicy::Fixed)
            .max_drafts(3)
            .tree_nodes(8);
        let mut bench = Bench::new(Form::Update(4), &options);
        let tree = Branching(known);
        let request = Request::from_ids(PROMPT).max_new_tokens(LENGTH as u64);
        let limits = ModelLimits {
            eos: vec![text[end]],
            ..limits()
        };
        bench.submit_within(&request.drafts(tree), &limits);
        while !bench.core.requests.is_empty() {
            bench.core.step().unwrap();
            bench.compare();
        }
        let told = bench.told().remove(0);
        assert_eq!(told.tokens, text[..=end]);
        let stats = &told.stats.speculation;
        assert!(stats.branched > 0, "{stats:?}");
        let rows = stats.rounds + stats.plain_steps;
        assert_eq!(stats.accepted + rows, end as u64 + 1, "{stats:?}");
    }
}

/// Whoever hears that a request has ended finds it in the totals: nothing is told before they are shown.
#[test]
fn totals_are_shown_before_the_end_is_told() {
    let mut bench = Bench::new(Form::Update(4), &EngineOptions::default());
    let id = bench.submit(&Request::from_ids(PROMPT).max_new_tokens(1));
    let (events, shown) = (bench.receiver(id), Arc::clone(&bench.core.shown));
    thread::scope(|scope| {
        let shown = shown.lock().unwrap();
        let step = scope.spawn(|| bench.core.step().unwrap());
        thread::sleep(Duration::from_millis(200));
        assert!(events.is_empty(), "told before the totals are shown");
        drop(shown);
        step.join().unwrap();
    });
    assert_eq!(shown.lock().unwrap().plain_steps, 1);
    let told = bench.events(id);
    assert!(
        matches!(told.last(), Some(Event::Finished { .. })),
        "{told:?}"
    );
}

/// A wrong draft, and beside it the right ones.
#[derive(Debug)]
struct Branching(Vec<u32>);

impl DraftSource for Branching {
    fn propose(&self, tokens: &[u32], most: usize) -> Vec<u32> {
        let right = self.0.iter().skip(tokens.len() - PROMPT.len());
        right.take(most).copied().collect()
    }

    fn propose_tree(
        &self,
        tokens: &[u32],
        most: usize,
    ) -> Result<DraftTree, Box<dyn std::error::Error + Send + Sync>> {
        let right = self.propose(tokens, most);
        let mut tree = DraftTree::chain(right.iter().take(1).map(|token| (token + 1) % 24));
        let mut at = None;
        for token in right {
            at = Some(tree.push(at, token)?);
        }
        Ok(tree)
    }
}
