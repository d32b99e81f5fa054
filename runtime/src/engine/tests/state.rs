//! Random requests with random drafts: the tokens that decoding one by one gives, and after every step the state that it
//! leaves.

use super::stand_in::{Bench, Law, SLOTS, VOCAB};
use crate::engine::EngineOptions;
use crate::request::{FinishReason, Request};
use crate::sample::SamplingParams;
use crate::settings::effort;
use crate::speculate::{DraftPolicy, Speculation};
use crate::txn::tests::fixture::Form;
use proptest::prelude::*;

/// One request as drawn.
#[derive(Clone, Debug)]
struct Ask {
    prompt: Vec<u32>,
    tokens: u64,
    seed: Option<u64>,
    /// Where it drafts for itself: of each step, how many drafts, and which of them errs.
    script: Option<Vec<(usize, usize)>>,
    /// Steps before it is submitted.
    after: usize,
    /// Steps before it is cancelled.
    cancelled: Option<usize>,
}

fn ask() -> impl Strategy<Value = Ask> {
    let token = 0..u32::try_from(VOCAB).unwrap();
    let script = prop::collection::vec((0usize..9, 0usize..9), 1..6);
    (
        prop::collection::vec(token, 1..14),
        1u64..24,
        prop::option::of(0u64..9),
        prop::option::weighted(0.6, script),
        0usize..6,
        prop::option::weighted(0.1, 1usize..12),
    )
        .prop_map(|(prompt, tokens, seed, script, after, cancelled)| Ask {
            prompt,
            tokens,
            seed,
            script,
            after,
            cancelled,
        })
}

impl Ask {
    fn params(&self) -> SamplingParams {
        match self.seed {
            Some(seed) => SamplingParams::sampled(0.8).top_k(9).min_p(0.01).seed(seed),
            None => SamplingParams::greedy(),
        }
    }

    /// The tokens that must come.
    fn text(&self) -> Vec<u32> {
        let count = usize::try_from(self.tokens).unwrap();
        Law::Everything.decode(&self.prompt, &self.params(), count)
    }

    /// The request, with drafts that know its text and err where the script says, at times with tokens that do not exist.
    fn request(&self, text: &[u32]) -> Request {
        let request = Request::from_ids(self.prompt.clone())
            .sampling(self.params())
            .max_new_tokens(self.tokens);
        let Some(script) = self.script.clone() else {
            return request;
        };
        let (text, prompt) = (text.to_vec(), self.prompt.len());
        request.drafts(move |tokens: &[u32], most: usize| {
            let done = tokens.len() - prompt;
            let (count, wrong) = script[done % script.len()];
            let other = |token: &u32| {
                if wrong == 3 {
                    token + 100
                } else {
                    (token + 1) % 24
                }
            };
            let err = |(i, token): (usize, &u32)| if i == wrong { other(token) } else { *token };
            let known = text.iter().skip(done).take(count.min(most)).enumerate();
            known.map(err).collect()
        })
    }
}

fn run(
    form: Form,
    mode: Speculation,
    (drafts, nodes, policy): (usize, usize, DraftPolicy),
    chunk: usize,
    asks: &[Ask],
) {
    let expected: Vec<Vec<u32>> = asks.iter().map(Ask::text).collect();
    let options = EngineOptions::default()
        .draft_policy(policy)
        .speculation(mode)
        .prefill_chunk(chunk);
    let options = match mode {
        Speculation::Off => options,
        Speculation::Tree | Speculation::Auto => options.max_drafts(drafts).tree_nodes(nodes),
        Speculation::Ngram | Speculation::Mtp => options.max_drafts(drafts),
    };
    let mut bench = Bench::new(form, &options);
    let mut ids = vec![None; asks.len()];
    for step in 0.. {
        for (ask, (id, text)) in asks.iter().zip(ids.iter_mut().zip(&expected)) {
            if ask.after == step {
                *id = Some(bench.submit(&ask.request(text)));
            }
            if let (true, Some(id)) = (ask.cancelled == Some(step), *id) {
                bench.core.cancel(id);
            }
        }
        bench.core.step().unwrap();
        bench.compare();
        if bench.core.requests.is_empty() && ids.iter().all(Option::is_some) {
            break;
        }
    }
    // Submission order is by `after`; identities say whose is whose.
    let told = bench.told();
    for (id, expected) in ids.iter().zip(&expected) {
        let told = &told[usize::try_from(id.unwrap().value()).unwrap() - 1];
        if told.reason == Some(FinishReason::Cancelled) {
            assert_eq!(told.tokens[..], expected[..told.tokens.len()]);
        } else {
            assert_eq!(&told.tokens, expected);
        }
    }
}

fn form() -> impl Strategy<Value = Form> {
    prop_oneof![
        (2usize..=8).prop_map(Form::State),
        (2usize..=8).prop_map(Form::Update)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200 * effort()))]

    #[test]
    fn random_requests_keep_what_their_tokens_leave(
        form in form(),
        mode in prop::sample::select(&Speculation::ALL[..]),
        drafts in 1usize..8,
        nodes in 1usize..=16,
        policy in prop::sample::select(&[DraftPolicy::Fixed, DraftPolicy::Adaptive][..]),
        chunk in 1usize..9,
        asks in prop::collection::vec(ask(), 1..SLOTS + 3),
    ) {
        let (Form::State(window) | Form::Update(window)) = form else { unreachable!() };
        run(form, mode, (drafts.min(window - 1), nodes, policy), chunk, &asks);
    }
}

/// Drafts are drawn with the noise of the positions they are for: a head that agrees is never refused, however it samples.
#[test]
fn a_head_that_agrees_drafts_what_will_be_drawn() {
    let options = EngineOptions::default()
        .draft_policy(DraftPolicy::Fixed)
        .speculation(Speculation::Mtp)
        .max_drafts(3);
    let params = SamplingParams::sampled(1.2).seed(4);
    let mut bench = Bench::of(Form::Update(4), Law::LastToken, &options);
    for prompt in [&[1, 2, 3][..], &[9]] {
        let request = Request::from_ids(prompt).sampling(params.clone());
        bench.submit(&request.max_new_tokens(40));
    }
    bench.drain();
    let stats = &bench.core.totals;
    assert!(
        stats.accepted > 50 && stats.accepted == stats.proposed,
        "{stats:?}"
    );
    let told = bench.told();
    assert_eq!(
        told[0].tokens,
        Law::LastToken.decode(&[1, 2, 3], &params, 40)
    );
    assert_eq!(told[1].tokens, Law::LastToken.decode(&[9], &params, 40));
}
