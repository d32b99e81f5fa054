//! How many tokens a step gives on the shipped checkpoint. Counts, not times: they are the same on every machine.

use super::request;
use pawl::{DraftPolicy, Engine, EngineOptions, LoadOptions, SamplingParams, Speculation};
use pawl_builder::CheckpointOption;
use pawl_tests::export::Export;
use pawl_tests::golden;

/// First of the ids that only chats have.
const CHAT_IDS: u32 = 2041;

fn tokens_per_step(params: &SamplingParams) -> f64 {
    let export = Export::of("tiny-python", CheckpointOption::Update(8));
    let options = EngineOptions::default()
        .draft_policy(DraftPolicy::Fixed)
        .speculation(Speculation::Mtp);
    let model = export.load(&LoadOptions::default().threads(1));
    let engine = Engine::new(model, &options.max_drafts(3)).unwrap();
    let prompts = golden::load("tiny-python")
        .into_iter()
        .map(|golden| golden.ids);
    let prompts = prompts.filter(|ids| ids.iter().all(|id| *id < CHAT_IDS));
    let (mut tokens, mut steps) = (0, 0);
    for ids in prompts {
        let completion = engine.generate(request(&ids, params, 192)).unwrap();
        tokens += completion.usage.generated_tokens;
        steps += completion.stats.steps;
    }
    tokens as f64 / steps as f64
}

#[test]
fn the_head_is_right_most_of_the_time() {
    let greedy = tokens_per_step(&SamplingParams::greedy());
    assert!(greedy >= 2.9, "greedy: {greedy:.2} tokens per step");
    let warm = tokens_per_step(&SamplingParams::sampled(0.8).seed(1));
    assert!(warm >= 1.9, "temperature 0.8: {warm:.2} tokens per step");
}
