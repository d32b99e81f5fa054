//! Texts that are held to a grammar: drafts of any kind leave them as they are, and only legal ones are run.

use super::stand_in::{Bench, Law, Told, limits};
use crate::engine::EngineOptions;
use crate::grammar::Grammar;
use crate::request::{FinishReason, ModelLimits, Request};
use crate::sample::SamplingParams;
use crate::speculate::{DraftPolicy, DraftSource, DraftTree, Source, Speculation};
use crate::txn::tests::fixture::Form;
use std::error::Error;
use std::sync::Arc;

const PROMPT: [u32; 3] = [1, 2, 3];
/// Groups of three digits, each with a sign behind it; complete after five. What may follow at one place is a part of what
/// may at the one before, or overlaps with it.
const GROUPS: &str = "([0-8][0-3][2-5][+,]){2,5}";
const LENGTH: usize = 20;

/// Whether a token may follow in [`GROUPS`], computed by hand: 15 is the token of `0`.
fn allowed(text: &[u32], token: u32) -> bool {
    match text.len() % 4 {
        0 => (15..=23).contains(&token),
        1 => (15..=18).contains(&token),
        2 => (17..=20).contains(&token),
        _ => token == 10 || token == 11,
    }
}

fn params() -> [SamplingParams; 3] {
    let sampled = SamplingParams::sampled(0.9);
    [
        SamplingParams::greedy(),
        sampled.clone(),
        sampled.top_k(5).top_p(0.9).min_p(0.01),
    ]
}

fn expected(prompt: &[u32], params: &SamplingParams) -> Vec<u32> {
    Law::Everything.decode_allowed(prompt, params, LENGTH, allowed)
}

fn options(mode: Speculation, drafts: usize) -> EngineOptions {
    let options = EngineOptions::default().speculation(mode);
    if mode == Speculation::Off {
        return options;
    }
    options.draft_policy(DraftPolicy::Fixed).max_drafts(drafts)
}

fn request(prompt: &[u32], params: &SamplingParams) -> Request {
    Request::from_ids(prompt)
        .sampling(params.clone())
        .grammar(Grammar::regex(GROUPS))
}

fn run(options: &EngineOptions, requests: &[Request]) -> (Vec<Told>, Bench) {
    let mut bench = Bench::new(Form::Update(8), options);
    for request in requests {
        bench.submit(request);
    }
    while !bench.core.requests.is_empty() {
        bench.core.step().unwrap();
        bench.compare();
    }
    (bench.told(), bench)
}

/// In every mode, for every number of drafts and of requests beside each other.
#[test]
fn the_mask_is_that_of_decoding_one_by_one() {
    let prompts: [&[u32]; 4] = [&PROMPT, &[7, 7, 7, 7], &[15, 16, 17, 10, 15, 16], &[9]];
    for params in params() {
        let texts = prompts.map(|prompt| expected(prompt, &params));
        let requests = prompts.map(|prompt| request(prompt, &params));
        let same = |options: &EngineOptions, count: usize| {
            for (told, text) in run(options, &requests[..count]).0.iter().zip(&texts) {
                assert_eq!(told.tokens, *text, "{options:?}");
                assert_eq!(told.reason, Some(FinishReason::Grammar));
                assert_eq!(told.text.len(), LENGTH);
            }
        };
        same(&options(Speculation::Off, 0), 4);
        for drafts in 1..=7 {
            for mode in [Speculation::Ngram, Speculation::Mtp, Speculation::Tree] {
                same(&options(mode, drafts), 1 + drafts % 4);
            }
        }
    }
}

/// Chains that are right but for one token that the grammar forbids, at each place in turn.
#[test]
fn a_chain_is_cut_where_the_grammar_forbids_it() {
    let text = expected(&PROMPT, &SamplingParams::greedy());
    for drafts in 1..=7 {
        for wrong in 0..drafts {
            let known = text.clone();
            let source = move |tokens: &[u32], most: usize| -> Vec<u32> {
                let done = tokens.len() - PROMPT.len();
                let known = known.iter().skip(done).take(most).enumerate();
                let err = |(at, token): (usize, &u32)| if at == wrong { 0 } else { *token };
                known.map(err).collect()
            };
            let request = request(&PROMPT, &SamplingParams::greedy()).drafts(source);
            let (told, bench) = run(&options(Speculation::Ngram, drafts), &[request]);
            assert_eq!(told[0].tokens, text, "{wrong} of {drafts}");
            let totals = &bench.core.totals;
            // Right ones are kept and wrong ones not even run.
            assert_eq!(totals.evaluated, totals.accepted, "{totals:?}");
            assert!(totals.proposed <= totals.accepted + 1, "{totals:?}");
            assert_eq!(totals.accepted > 0, wrong > 0, "{totals:?}");
            assert!(totals.forbidden > 0, "{totals:?}");
            assert_eq!(told[0].stats.speculation.forbidden, totals.forbidden);
        }
    }
}

/// The right text on one path, beside guesses that the grammar forbids, with more below them, and wrong ones that it allows.
struct Bushy(Arc<Vec<u32>>);

impl DraftSource for Bushy {
    fn propose(&self, _: &[u32], _: usize) -> Vec<u32> {
        Vec::new()
    }

    fn propose_tree(
        &self,
        tokens: &[u32],
        most: usize,
    ) -> Result<DraftTree, Box<dyn Error + Send + Sync>> {
        let done = tokens.len() - PROMPT.len();
        let mut tree = DraftTree::default();
        let mut above = None;
        for (at, token) in self.0.iter().enumerate().skip(done).take(most) {
            let forbidden = tree.push(above, 5)?;
            tree.push(Some(forbidden), *token)?;
            let mut others = (0..24).filter(|other| other != token);
            let other = others.find(|other| allowed(&self.0[..at], *other));
            tree.push(above, other.unwrap())?;
            above = Some(tree.push(above, *token)?);
        }
        Ok(tree)
    }
}

#[test]
fn a_tree_loses_what_the_grammar_forbids_and_what_is_below() {
    for params in params() {
        let text = Arc::new(expected(&PROMPT, &params));
        let request = request(&PROMPT, &params).drafts(Bushy(Arc::clone(&text)));
        let options = options(Speculation::Tree, 4).tree_nodes(16);
        let (told, bench) = run(&options, &[request]);
        assert_eq!(told[0].tokens, *text);
        let totals = &bench.core.totals;
        assert!(totals.branched > 1 && totals.accepted > 5, "{totals:?}");
        assert!(totals.forbidden >= 2 * totals.rounds, "{totals:?}");
    }
}

/// A head whose drafts a text does not allow may be good for others.
#[test]
fn a_head_is_not_given_up_for_what_a_grammar_forbids() {
    let request = Request::from_ids(PROMPT).grammar(Grammar::regex("[+]{5}[#][(]{30}"));
    let (_, bench) = run(&options(Speculation::Mtp, 2), &[request]);
    let totals = &bench.core.totals;
    assert!(totals.forbidden > 10, "{totals:?}");
    assert!(totals.fallbacks.is_empty(), "{totals:?}");
    assert!(bench.core.sources.has(Source::Head));
}

/// What is told with `eos` for an end token; `known` is drafted from.
fn ended(grammar: &str, eos: u32, ignore: bool, known: &[u32]) -> Told {
    let options = options(Speculation::Ngram, 7);
    let mut bench = Bench::new(Form::Update(8), &options);
    let limits = ModelLimits {
        eos: vec![eos],
        ..limits()
    };
    let known = known.to_vec();
    let source = move |tokens: &[u32], most: usize| -> Vec<u32> {
        let known = known.iter().skip(tokens.len() - PROMPT.len());
        known.take(most).copied().collect()
    };
    let request = Request::from_ids(PROMPT).grammar(Grammar::regex(grammar));
    let request = request.ignore_eos(ignore).max_new_tokens(30).drafts(source);
    bench.submit_within(&request, &limits);
    bench.drain();
    bench.told().remove(0)
}

/// An end token in a draft is one where the text may end, and nothing else.
#[test]
fn the_end_comes_where_the_grammar_lets_it_whatever_is_drafted() {
    let grammar = "[0-3]{3}([+][0-3])*";
    for eos in [0, 10, 16] {
        let plain = ended(grammar, eos, false, &[]);
        let text = &plain.tokens[..plain.tokens.len() - 1];
        for end in 0..plain.tokens.len() + 2 {
            let mut known = plain.tokens.clone();
            known.insert(end.min(known.len()), eos);
            let drafted = ended(grammar, eos, false, &known);
            assert_eq!(drafted.tokens, plain.tokens, "{eos} at {end}");
            assert_eq!((&drafted.text, drafted.reason), (&plain.text, plain.reason));
        }
        if plain.reason == Some(FinishReason::Eos) {
            assert!(text.len() >= 3, "{plain:?}");
        }
        // The token is a digit or a sign of the text where it ends nothing.
        let ignored = ended(grammar, eos, true, &plain.tokens);
        assert_eq!(ignored.reason, Some(FinishReason::MaxNewTokens));
        assert_eq!(ignored.tokens.len(), 30);
    }
}

/// A finished grammar ends the request, also where end tokens are ignored.
#[test]
fn a_complete_text_ends_the_request() {
    for ignore in [false, true] {
        let told = ended("[0-3]{3}[+]", 0, ignore, &[]);
        assert_eq!(told.reason, Some(FinishReason::Grammar));
        assert_eq!((told.tokens.len(), told.text.len()), (4, 4));
        let drafted = ended("[0-3]{3}[+]", 0, ignore, &told.tokens.repeat(3));
        assert_eq!((drafted.tokens, drafted.reason), (told.tokens, told.reason));
    }
}

/// A state that was forked in the middle goes on in the grammar from its tokens.
#[test]
fn what_was_begun_goes_on() {
    let params = SamplingParams::greedy();
    let text = expected(&PROMPT, &params);
    for done in 0..LENGTH {
        let prompt = [&PROMPT, &text[..done]].concat();
        let grammar = Grammar::regex(GROUPS).begun_at(PROMPT.len());
        let request = Request::from_ids(prompt).grammar(grammar);
        let told = run(&options(Speculation::Mtp, 3), &[request]).0.remove(0);
        assert_eq!(told.tokens, text[done..], "after {done}");
        assert_eq!(told.reason, Some(FinishReason::Grammar));
    }
}
