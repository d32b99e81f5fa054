//! What a step without drafts asks the allocator for: the same in a model that could capture as in one that cannot, but for the
//! value of one input more, which says that nothing is captured.

#![allow(
    clippy::unwrap_used,
    reason = "a case stops where its expectations fail"
)]

use pawl::{Engine, EngineOptions, LoadOptions, ObservedStep, Request, Speculation};
use pawl_builder::CheckpointOption;
use pawl_tests::export::Export;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const TOKENS: usize = 48;

/// Allocations of the process, and their bytes, when each step of a decoding request was published.
fn counted(export: &Export) -> Vec<(usize, usize)> {
    let counts = Arc::new(Mutex::new(Vec::with_capacity(4 * TOKENS)));
    let options = EngineOptions::default()
        .speculation(Speculation::Off)
        .audit(false)
        .observe_steps({
            let counts = Arc::clone(&counts);
            move |_: &ObservedStep<'_>| {
                let now = ALLOCATOR.stats();
                let bytes = now.bytes_allocated;
                let mut counts = counts.lock().unwrap();
                counts.push((now.allocations + now.reallocations, bytes));
            }
        });
    let engine = Engine::new(export.load(&LoadOptions::default()), &options).unwrap();
    let request = Request::from_ids([3, 4, 5])
        .max_new_tokens(TOKENS as u64)
        .ignore_eos(true);
    // The first request meets memory that grows once.
    engine.generate(request.clone()).unwrap();
    counts.lock().unwrap().clear();
    engine.generate(request).unwrap();
    counts.lock().unwrap().clone()
}

/// What most steps asked for. Now and then whoever waits for the text allocates at the same time.
fn usual(export: &Export) -> (usize, usize) {
    let counts = counted(export);
    assert_eq!(counts.len(), TOKENS);
    let mut steps = BTreeMap::new();
    for pair in counts.windows(2) {
        let [before, after] = pair else { continue };
        let bytes = steps.entry(after.0 - before.0).or_insert_with(Vec::new);
        bytes.push(after.1 - before.1);
    }
    let (count, mut bytes) = steps
        .into_iter()
        .max_by_key(|(_, bytes)| bytes.len())
        .unwrap();
    bytes.sort_unstable();
    (count, bytes.swap_remove(bytes.len() / 2))
}

/// A value of ONNX Runtime and its shape.
const INPUT: usize = 2;

#[test]
fn a_step_without_drafts_allocates_what_it_does_without_checkpoints() {
    let export = |checkpoints| Export::of("tiny-python", checkpoints);
    let (none, bytes) = usual(&export(CheckpointOption::None));
    assert!(none > 0, "nothing is counted");
    for checkpoints in [CheckpointOption::Update(8), CheckpointOption::State(8)] {
        let (count, more) = usual(&export(checkpoints));
        assert_eq!(count, none + INPUT, "{checkpoints}");
        assert!(
            more < bytes + 512,
            "{checkpoints}: {more} bytes, {bytes} without"
        );
    }
}
