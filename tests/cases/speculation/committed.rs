//! After every committed step the state is what token-by-token decoding of the same tokens leaves, on exported graphs.
//!
//! The twin that decodes token by token cuts its prompts alike. Convolutions are compared byte for byte. Recurrent state and
//! caches may differ by rounding where a platform's matrix products do: on x86-64 they do not differ at all.

use super::{BOTH, MOST, engine, mix, off, planned, request};
use pawl::{
    CacheTensor, DraftPolicy, Engine, EngineOptions, Request, RequestHandle, SamplingParams,
    Speculation, StateTensor,
};
use pawl_tests::compare::largest_difference;
use pawl_tests::export::Export;
use pawl_tests::golden;
use pawl_tests::steps::{Recorder, RowRecord};
use std::collections::BTreeMap;

const NEW_TOKENS: u64 = 40;
pub(super) const CHUNK: usize = 16;
const SCRIPTS: usize = 4;
/// How far recurrent state and caches may be off.
const ROUNDING: f32 = 1e-6;

/// What a request keeps after so many tokens.
type Kept = BTreeMap<usize, (Vec<StateTensor>, Vec<CacheTensor>)>;

/// A request and its twin's tokens and state.
pub(super) struct Twin {
    pub(super) request: Request,
    pub(super) prompt: usize,
    pub(super) tokens: Vec<u32>,
    kept: Kept,
}

/// Submits together, then waits. Returns tokens and rows of each request.
pub(super) fn run(
    engine: &Engine,
    recorder: &Recorder,
    requests: impl Iterator<Item = Request>,
) -> Vec<(Vec<u32>, Vec<RowRecord>)> {
    let handles: Vec<RequestHandle> = requests.map(|r| engine.submit(r).unwrap()).collect();
    let ended = handles.into_iter().map(|handle| {
        let id = handle.id();
        (handle.wait().unwrap().tokens, recorder.rows(id))
    });
    ended.collect()
}

pub(super) fn twins(name: &str, export: &Export) -> Vec<Twin> {
    let params = SamplingParams::sampled(0.8).top_k(20).seed(9);
    let prompts = golden::load(name).into_iter().map(|golden| golden.ids);
    let prompts: Vec<Vec<u32>> = prompts.take(3).collect();
    let ask = |prompt: &Vec<u32>| request(prompt, &params, NEW_TOKENS);
    let recorder = Recorder::with_state();
    let options = off().prefill_chunk(CHUNK).observe_steps(recorder.clone());
    let engine = engine(export, &options);
    let decoded = run(&engine, &recorder, prompts.iter().map(ask));
    let twin = |(prompt, (tokens, rows)): (&Vec<u32>, (Vec<u32>, Vec<RowRecord>))| Twin {
        request: ask(prompt),
        prompt: prompt.len(),
        tokens,
        kept: rows
            .into_iter()
            .map(|row| (row.committed(), (row.states, row.cache)))
            .collect(),
    };
    prompts.iter().zip(decoded).map(twin).collect()
}

/// The largest difference of a row's state from its twin's.
pub(super) fn compare(what: &str, row: &RowRecord, twin: &Twin) -> f32 {
    let (states, cache) = &twin.kept[&row.committed()];
    assert_eq!(
        (row.states.len(), row.cache.len()),
        (states.len(), cache.len())
    );
    let convolutions = row.states.iter().filter(|state| state.shape.len() == 2);
    assert!(
        convolutions.count() > 0,
        "{what}: no state of a convolution"
    );
    let mut worst = 0.0_f32;
    for (found, expected) in row.states.iter().zip(states) {
        let what = format!("{what}: {}", found.name);
        if found.shape.len() == 2 {
            let bits = |tensor: &StateTensor| -> Vec<u32> {
                tensor.values.iter().map(|value| value.to_bits()).collect()
            };
            assert!(bits(found) == bits(expected), "{what} differs");
        }
        worst = worst.max(largest_difference(&found.values, &expected.values));
        assert!(worst <= ROUNDING, "{what} differs by {worst:e}");
    }
    for (found, expected) in row.cache.iter().zip(cache) {
        let keys = largest_difference(&found.keys, &expected.keys);
        worst = worst
            .max(keys)
            .max(largest_difference(&found.values, &expected.values));
        let layer = found.layer;
        assert!(
            worst <= ROUNDING,
            "{what}: cache of layer {layer} differs by {worst:e}"
        );
    }
    worst
}

/// Random numbers of drafts, random errors, several requests per step.
fn check(name: &str, modes: &[Speculation]) {
    for form in BOTH {
        let export = Export::of(name, form);
        let twins = twins(name, &export);
        let (mut worst, mut rows) = (0.0_f32, 0);
        let (mut drafting, mut partial) = (0, 0);
        for (script, mode) in (0..SCRIPTS).zip(modes.iter().cycle()) {
            let recorder = Recorder::with_state();
            let options = EngineOptions::default()
                .draft_policy(DraftPolicy::Fixed)
                .speculation(*mode)
                .max_drafts(MOST)
                .prefill_chunk(CHUNK)
                .observe_steps(recorder.clone());
            let asked = twins.iter().enumerate().map(|(p, twin)| {
                let plan = move |done: usize| {
                    let seed = mix(done + 1000 * (script * 8 + p));
                    (seed % (MOST + 1), seed / 64 % (MOST + 1))
                };
                let drafts = planned(twin.prompt, &twin.tokens, plan);
                twin.request.clone().drafts(drafts)
            });
            let found = run(&engine(&export, &options), &recorder, asked);
            for (p, (twin, (tokens, of_request))) in twins.iter().zip(found).enumerate() {
                assert_eq!(tokens, twin.tokens);
                for row in of_request {
                    let (kept, run, past) = (row.kept, row.run, row.past);
                    let what = format!(
                        "{name}, {form:?}, {mode}, prompt {p}: {kept} of {run} kept at {past}"
                    );
                    worst = worst.max(compare(&what, &row, twin));
                    rows += 1;
                    drafting += usize::from(row.drafts > 0);
                    partial += usize::from(kept < run);
                }
            }
        }
        println!("{name}, {form:?}: {rows} rows differ by at most {worst:e}");
        assert!(
            drafting > 60 && partial > 40,
            "{drafting} rows drafted, {partial} kept a part"
        );
    }
}

#[test]
fn gated_delta_and_attention() {
    check("qwen3_5-odd", &[Speculation::Mtp, Speculation::Ngram]);
}

#[test]
fn short_convolution_and_attention() {
    check("lfm2-odd", &[Speculation::Ngram]);
}

#[test]
fn the_shipped_checkpoint() {
    check("tiny-python", &[Speculation::Mtp, Speculation::Ngram]);
}
