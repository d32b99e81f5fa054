//! How a head is wired decides how often it is right, and nothing else; one that is never right is left alone.

use super::{engine_of, off, request};
use pawl::{
    DraftPolicy, EngineOptions, SamplingParams, Source, SourceStats, Speculation, SpeculationStats,
};
use pawl_builder::{CheckpointOption, HeadHidden, HeadOrder, MtpWeights, MtpWiring};
use pawl_tests::checkpoint;
use pawl_tests::export::Export;
use pawl_tests::golden;

const NEW_TOKENS: u64 = 120;

fn export(hidden: HeadHidden, order: HeadOrder) -> Export {
    Export::with(&checkpoint("tiny-python"), |options| {
        options.checkpoints = CheckpointOption::Update(8);
        let mut wiring = MtpWiring::default();
        (wiring.hidden, wiring.order) = (hidden, order);
        options.wiring = wiring;
    })
}

/// Rounds that the head drafted for, and how many of its drafts were run and kept.
fn of_head(stats: &SpeculationStats) -> (u64, u64, u64) {
    let of = |of: &&SourceStats| of.source == Source::Head;
    let head = stats.by_source.iter().find(of);
    head.map_or((0, 0, 0), |of| (of.rounds, of.proposed, of.accepted))
}

#[test]
fn the_right_wiring_agrees_most_and_the_wrong_order_is_given_up() {
    let prompts: Vec<Vec<u32>> = golden::load("tiny-python")
        .into_iter()
        .map(|golden| golden.ids)
        .take(4)
        .collect();
    let ask = || {
        let greedy = SamplingParams::greedy();
        prompts
            .iter()
            .map(move |ids| request(ids, &greedy, NEW_TOKENS))
    };
    let default = export(HeadHidden::default(), HeadOrder::default());
    let plain = engine_of(&default, 4, &off()).generate_all(ask()).unwrap();
    let options = EngineOptions::default()
        .draft_policy(DraftPolicy::Fixed)
        .speculation(Speculation::Mtp)
        .max_drafts(3);
    let adaptive = options.clone().draft_policy(DraftPolicy::Adaptive);
    let mut rates = Vec::new();
    for hidden in [HeadHidden::AfterNorm, HeadHidden::BeforeNorm] {
        for order in [HeadOrder::EmbeddingFirst, HeadOrder::HiddenFirst] {
            let export = export(hidden, order);
            let engine = engine_of(&export, 4, &options);
            let found = engine.generate_all(ask()).unwrap();
            for (found, plain) in found.iter().zip(&plain) {
                assert_eq!(found.tokens, plain.tokens, "{hidden}, {order}");
            }
            let stats = engine.speculation_stats();
            let (rounds, proposed, accepted) = of_head(&stats);
            println!(
                "{hidden}, {order}: {accepted} of {proposed} in {rounds} rounds, {:?}",
                stats.fallbacks
            );
            // By default a head is judged as soon, for two answers of ordinary length are enough.
            let soon = engine_of(&export, 4, &adaptive);
            soon.generate_all(ask().take(2)).unwrap();
            let soon = soon.speculation_stats().fallbacks;
            let told = stats
                .fallbacks
                .iter()
                .any(|fallback| fallback.reason.contains("--mtp-order"));
            assert_eq!(
                told,
                order == HeadOrder::HiddenFirst,
                "{hidden}, {order}: {stats:?}"
            );
            assert_eq!(soon.is_empty(), !told, "{hidden}, {order}: {soon:?}");
            if told {
                // It was judged by so many rounds, and no more than those that were under way.
                assert!((32..=70).contains(&rounds), "{stats:?}");
            }
            rates.push(accepted as f64 / proposed as f64);
        }
    }
    // The head's own norm takes away most of what tells the two hidden rows apart; the order is all or nothing.
    let [right, hidden_first, before, both] = rates.as_slice() else {
        panic!("four wirings")
    };
    assert!(*right > 0.5 && before - right < 0.02, "{rates:?}");
    assert!(hidden_first.max(*both) < 0.05, "{rates:?}");
}

/// What 8 bits cost: a head of them is right about as often, and never says anything else in the text.
#[test]
fn a_head_in_8_bits_is_right_as_often() {
    let prompts: Vec<Vec<u32>> = golden::load("tiny-python")
        .into_iter()
        .map(|golden| golden.ids)
        .collect();
    let options = EngineOptions::default()
        .draft_policy(DraftPolicy::Fixed)
        .speculation(Speculation::Mtp)
        .max_drafts(3);
    let greedy = SamplingParams::greedy();
    let [exact, int8] = [MtpWeights::Same, MtpWeights::Int8].map(|weights| {
        let export = Export::with(&checkpoint("tiny-python"), |options| {
            options.checkpoints = CheckpointOption::Update(8);
            options.mtp_weights = Some(weights);
        });
        let engine = engine_of(&export, 4, &options);
        let ask = prompts.iter().map(|ids| request(ids, &greedy, NEW_TOKENS));
        let found = engine.generate_all(ask).unwrap();
        let tokens: Vec<_> = found.into_iter().map(|found| found.tokens).collect();
        let (_, proposed, accepted) = of_head(&engine.speculation_stats());
        println!("{weights}: {accepted} of {proposed}");
        (tokens, accepted as f64 / proposed as f64)
    });
    assert_eq!(exact.0, int8.0);
    assert!(
        exact.1 > 0.5 && int8.1 > exact.1 - 0.02,
        "{:?}",
        (exact.1, int8.1)
    );
}
