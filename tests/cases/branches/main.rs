//! States that are forked, rewound, saved and restored go on as if they had been computed on the spot.

#![allow(
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a case stops where its expectations fail; a child is told by its environment what to do"
)]

mod files;
mod forks;
mod positions;
mod scripts;

use pawl::{
    DraftPolicy, Engine, EngineOptions, Kept, LoadOptions, Request, SamplingParams, Speculation,
};
use pawl_builder::CheckpointOption;
use pawl_tests::export::Export;

fn options() -> EngineOptions {
    // Rows of at most so many tokens are run token by token, so that cuts cannot show in the last bits.
    EngineOptions::default()
        .draft_policy(DraftPolicy::Fixed)
        .prefill_chunk(16)
}

fn engine(export: &Export, load: &LoadOptions, options: &EngineOptions) -> Engine {
    Engine::new(export.load(load), options).unwrap()
}

fn request(ids: &[u32], params: &SamplingParams) -> Request {
    Request::from_ids(ids)
        .sampling(params.clone())
        .max_new_tokens(9)
        .ignore_eos(true)
}

fn greedy(ids: &[u32]) -> Request {
    request(ids, &SamplingParams::greedy())
}

fn words(seed: u32, count: u32) -> Vec<u32> {
    (0..count).map(|i| 3 + (seed * 31 + i * 7) % 200).collect()
}

/// A state, and all tokens known after it.
fn keep(engine: &Engine, ids: &[u32]) -> (Kept, Vec<u32>) {
    let first = engine.generate(greedy(ids).keep_state(true)).unwrap();
    (first.kept.unwrap(), [ids, &first.tokens].concat())
}

/// Continues a state with some tokens, and compares with a run from nothing.
fn compare(what: &str, engine: &Engine, fresh: &Engine, kept: Kept, rest: &[u32]) {
    for params in [
        SamplingParams::greedy(),
        SamplingParams::sampled(0.8).top_k(40).seed(3),
    ] {
        let prompt = [kept.tokens(), rest].concat();
        let expected = fresh.generate(request(&prompt, &params)).unwrap();
        let branch = kept.fork().unwrap();
        let found = request(&prompt, &params).continue_from(branch);
        let found = engine.generate(found).unwrap();
        assert_eq!(found.tokens, expected.tokens, "{what}, {params:?}");
        assert_eq!(
            found.usage.reused_tokens,
            kept.tokens().len() as u64,
            "{what}"
        );
    }
}

/// Models, their checkpoint forms, and what speculates on them.
fn setups() -> Vec<(&'static str, CheckpointOption, Vec<Speculation>)> {
    use CheckpointOption::{None, State, Update};
    use Speculation::{Mtp, Ngram, Off};
    vec![
        ("qwen3_5-odd", Update(8), vec![Off, Ngram, Mtp]),
        ("qwen3_5-odd", State(8), vec![Off, Ngram, Mtp]),
        ("qwen3_5-odd", None, vec![Off]),
        ("lfm2-odd", Update(8), vec![Off, Ngram]),
        ("lfm2-odd", State(8), vec![Off, Ngram]),
        ("llama-odd", None, vec![Off, Ngram]),
    ]
}

fn each_setup(check: impl Fn(&str, &Engine, &Engine)) {
    for (name, form, modes) in setups() {
        let export = Export::of(name, form);
        for mode in modes {
            let options = options().speculation(mode);
            let work = engine(&export, &LoadOptions::default(), &options);
            let fresh = engine(&export, &LoadOptions::default(), &options);
            check(&format!("{name}, {form:?}, {mode}"), &work, &fresh);
        }
    }
}
