//! Checkpoints cost nothing where nothing is drafted: the same steps, draws and bits as of a model that has none.

use super::{engine, off, request};
use pawl::SamplingParams;
use pawl_builder::CheckpointOption;
use pawl_tests::export::Export;
use pawl_tests::golden;
use pawl_tests::steps::{Recorder, RowRecord};

/// Every step of some requests, prompts and decoding. One after the other: which of them share a step is up to the clock.
fn steps(name: &str, checkpoints: CheckpointOption) -> Vec<Vec<RowRecord>> {
    let recorder = Recorder::with_state();
    let options = off().prefill_chunk(40).observe_steps(recorder.clone());
    let engine = engine(&Export::of(name, checkpoints), &options);
    let params = SamplingParams::sampled(0.8).top_k(20).seed(4);
    let prompts = golden::load(name).into_iter().take(4);
    for golden in prompts {
        engine.generate(request(&golden.ids, &params, 20)).unwrap();
    }
    recorder.steps()
}

fn bits<'a>(values: impl IntoIterator<Item = &'a f32>) -> Vec<u32> {
    values.into_iter().map(|value| value.to_bits()).collect()
}

fn check(name: &str) {
    let bare = steps(name, CheckpointOption::None);
    assert!(bare.len() > 20);
    for form in [CheckpointOption::Update(8), CheckpointOption::State(8)] {
        let found = steps(name, form);
        assert_eq!(found.len(), bare.len(), "{name}, {form:?}");
        for (found, bare) in found.iter().flatten().zip(bare.iter().flatten()) {
            let what = format!("{name}, {form:?}, {} run at {}", bare.run, bare.past);
            let extent = |row: &RowRecord| (row.past, row.run, row.kept, row.drafts);
            assert_eq!(extent(found), extent(bare), "{what}");
            assert_eq!(found.drawn, bare.drawn, "{what}");
            for (found, bare) in found.states.iter().zip(&bare.states) {
                assert_eq!(found.name, bare.name, "{what}");
                assert_eq!(
                    bits(&found.values),
                    bits(&bare.values),
                    "{what}: {}",
                    bare.name
                );
            }
            let cache = |row: &RowRecord| {
                let layers = row.cache.iter();
                let values = layers.flat_map(|layer| layer.keys.iter().chain(&layer.values));
                bits(values)
            };
            assert_eq!(cache(found), cache(bare), "{what}");
        }
    }
}

#[test]
fn gated_delta_and_attention() {
    check("qwen3_5-odd");
}

#[test]
fn short_convolution_and_attention() {
    check("lfm2-odd");
}
