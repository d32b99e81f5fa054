//! Far into a long text a head drafts what it would draft if it had read all of it at once: its positions, its cache and
//! its hidden rows are those of the text, however many of its own guesses were thrown away before.

use super::{engine_of, request};
use pawl::{
    DraftPolicy, EngineOptions, EvaluateOptions, LoadOptions, ObservedStep, SamplingParams,
};
use pawl_builder::CheckpointOption;
use pawl_tests::export::Export;
use pawl_tests::golden;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Tokens of the prompt, near the end of the context.
const PROMPT: usize = 3_960;
const NEW_TOKENS: u64 = 90;
const DRAFTS: usize = 4;
/// Logits nearer than this may change places.
const TIE: f32 = 1e-4;

/// The drafts of one request, by the tokens that were known when they were made.
type Seen = Arc<Mutex<BTreeMap<usize, Vec<u32>>>>;

fn watched(seen: &Seen) -> EngineOptions {
    let seen = Arc::clone(seen);
    let observe = move |step: &ObservedStep<'_>| {
        for row in step.rows().iter().filter(|row| row.drafts() > 0) {
            let drafted = row.drafted().unwrap().nodes().map(|(_, token)| token);
            let known = row.past() + row.run() - row.drafts();
            seen.lock().unwrap().insert(known, drafted.collect());
        }
    };
    EngineOptions::default()
        .draft_policy(DraftPolicy::Fixed)
        .max_drafts(DRAFTS)
        .observe_steps(observe)
}

/// A long text: what the goldens say, over and over.
fn long_text() -> Vec<u32> {
    let goldens = golden::load("tiny-python").into_iter();
    let ids: Vec<u32> = goldens.flat_map(|golden| golden.ids).collect();
    ids.iter().copied().cycle().take(PROMPT).collect()
}

#[test]
fn drafts_far_out_are_those_of_a_head_that_reads_the_whole_text() {
    // Not in 8 bits: there a row of the head is the same whatever rows lie beside it, but its input is rounded to steps of
    // 1/127. The last bits, in which the model's own rows may differ by the number of their neighbours, become such a step in
    // one row of a thousand, and logits of unit size then move by up to 5e-3.
    let export = Export::exact("tiny-python", CheckpointOption::Update(8));
    let (prompt, seen) = (long_text(), Seen::default());
    let engine = engine_of(&export, 1, &watched(&seen));
    let found = engine.generate(request(&prompt, &SamplingParams::greedy(), NEW_TOKENS));
    let greedy = [prompt.as_slice(), &found.unwrap().tokens].concat();
    let drafts = std::mem::take(&mut *seen.lock().unwrap());
    // What wrong drafts left must be gone.
    let stats = engine.speculation_stats();
    assert!(stats.corrections > 3 && stats.accepted > 10, "{stats:?}");
    assert!(drafts.len() > 15, "{} rounds", drafts.len());

    first_drafts(&export, &greedy, &drafts);
    whole_chains(&export, &greedy, &drafts);
}

/// The first draft behind `known` tokens is what the head's row of the last of them says, run over the whole text.
fn first_drafts(export: &Export, text: &[u32], drafts: &BTreeMap<usize, Vec<u32>>) {
    let mut model = export.load(&LoadOptions::default().threads(1));
    let whole = model.evaluate(&[text], &EvaluateOptions::default());
    let whole = whole.unwrap().remove(0);
    let head = whole.head_logits.unwrap();
    for (known, drafted) in drafts {
        let row = &head[(known - 2) * whole.vocab..][..whole.vocab];
        let best = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let short = best - row[drafted[0] as usize];
        assert!(
            short <= TIE,
            "draft behind {known} tokens is {short:e} short of the best"
        );
    }
}

/// All drafts behind every fourth prefix are those of a request that has just read the prefix as its prompt.
fn whole_chains(export: &Export, text: &[u32], drafts: &BTreeMap<usize, Vec<u32>>) {
    let mut compared = 0;
    let seen = Seen::default();
    let fresh = engine_of(export, 1, &watched(&seen));
    for (known, drafted) in drafts.iter().step_by(4) {
        seen.lock().unwrap().clear();
        let asked = request(
            &text[..known - 1],
            &SamplingParams::greedy(),
            3 + DRAFTS as u64,
        );
        let found = fresh.generate(asked).unwrap();
        assert_eq!(found.tokens[0], text[known - 1], "behind {known} tokens");
        let again = seen.lock().unwrap().get(known).cloned().unwrap();
        // The last ones were cut where the request ended.
        let again = &again[..drafted.len()];
        assert_eq!(again, drafted, "drafts behind {known} tokens");
        compared += drafted.len();
    }
    assert!(compared > 4 * DRAFTS, "{compared} drafts were compared");
}
