//! What speculation costs when nothing drafts, and what is refused.

use super::{engine, request};
use pawl::{
    DraftPolicy, Engine, EngineOptions, LoadOptions, SamplingParams, Speculation, SpeculationStats,
};
use pawl_builder::CheckpointOption;
use pawl_tests::export::Export;
use pawl_tests::golden;

/// Nothing is bound for checkpoints unless a row drafts.
#[test]
fn plain_steps_capture_nothing() {
    let export = Export::of("qwen3_5-odd", CheckpointOption::Update(8));
    let golden = &golden::load("qwen3_5-odd")[2];
    let capturing = |options: EngineOptions, silent: bool| -> SpeculationStats {
        let engine = engine(&export, &options);
        let request = request(&golden.ids, &SamplingParams::greedy(), 40);
        let request = if silent {
            request.drafts(|_: &[u32], _: usize| Vec::new())
        } else {
            request
        };
        engine.generate(request).unwrap();
        engine.speculation_stats()
    };
    assert_eq!(
        capturing(
            EngineOptions::default()
                .draft_policy(DraftPolicy::Fixed)
                .speculation(Speculation::Off),
            false
        )
        .capturing_steps,
        0
    );
    assert_eq!(
        capturing(
            EngineOptions::default().draft_policy(DraftPolicy::Fixed),
            true
        )
        .capturing_steps,
        0
    );
    let stats = capturing(
        EngineOptions::default().draft_policy(DraftPolicy::Fixed),
        false,
    );
    assert!(
        stats.capturing_steps > 0 && stats.capturing_steps == stats.rounds,
        "{stats:?}"
    );
}

/// What a model cannot do is an error when the engine starts.
#[test]
fn impossible_speculation_is_refused() {
    let refuse = |export: &Export, options: EngineOptions| {
        Engine::new(export.load(&LoadOptions::default()), &options)
            .unwrap_err()
            .to_string()
    };
    let bare = Export::of("qwen3_5-odd", CheckpointOption::None);
    let mtp = || {
        EngineOptions::default()
            .draft_policy(DraftPolicy::Fixed)
            .speculation(Speculation::Mtp)
    };
    assert!(refuse(&bare, mtp()).contains("without checkpoints"));
    let small = Export::of("qwen3_5-odd", CheckpointOption::State(3));
    assert!(
        refuse(
            &small,
            EngineOptions::default()
                .draft_policy(DraftPolicy::Fixed)
                .max_drafts(3)
        )
        .contains("1 to 2")
    );
    let headless = Export::of("lfm2-odd", CheckpointOption::Update(8));
    assert!(refuse(&headless, mtp()).contains("no drafting head"));
    let auto = EngineOptions::default().speculation(Speculation::Auto);
    let auto = engine(&headless, &auto).speculation().clone();
    assert_eq!(auto.mode, Speculation::Auto);
    assert!(auto.reason.unwrap().contains("only lookups"));
    let off = engine(
        &bare,
        &EngineOptions::default().draft_policy(DraftPolicy::Fixed),
    );
    assert!(
        off.speculation()
            .to_string()
            .contains("without checkpoints")
    );
}
