//! Exported fixtures compute what the reference computed, however the work is cut.

#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a case stops where its expectations fail, and prints what excuses it"
)]

use pawl::{
    Engine, EngineOptions, EvaluateOptions, Evaluation, LoadOptions, Request, SamplingParams,
};
use pawl_builder::CheckpointOption;
use pawl_tests::compare::{assert_close, assert_greedy};
use pawl_tests::export::Export;
use pawl_tests::golden::{self, Golden};

const LOGITS: f32 = 2e-4;
const STATES: f32 = 1e-4;
const TIE: f32 = 1e-3;

/// Every form of checkpoints and every cut of the prompt, alone and beside the others.
fn check_evaluations(name: &str) {
    let goldens = golden::load(name);
    let forms = [
        CheckpointOption::Update(8),
        CheckpointOption::State(4),
        CheckpointOption::None,
    ];
    for form in forms {
        let mut model = Export::of(name, form).load(&LoadOptions::default());
        let sequences: Vec<&[u32]> = goldens.iter().map(|g| g.ids.as_slice()).collect();
        for chunk in [0, 1, 3, 16] {
            let options = EvaluateOptions::default().chunk(chunk).states(true);
            let what = format!("{name}, checkpoints {form:?}, chunk {chunk}");
            let together = model.evaluate(&sequences, &options).unwrap();
            assert_eq!(together.len(), goldens.len());
            for (p, (golden, found)) in goldens.iter().zip(&together).enumerate() {
                check(&format!("{what}, prompt {p} of a batch"), golden, found);
                let alone = model.evaluate(&[&golden.ids], &options).unwrap();
                check(&format!("{what}, prompt {p} alone"), golden, &alone[0]);
            }
        }
    }
}

fn check(what: &str, golden: &Golden, found: &Evaluation) {
    assert_close(
        &format!("{what}: logits"),
        &found.logits,
        &golden.logits,
        LOGITS,
    );
    match (&golden.head_logits, &found.head_logits) {
        (Some(golden), Some(found)) => {
            assert_close(&format!("{what}: head logits"), found, golden, LOGITS);
        }
        (None, Some(found)) => assert!(found.is_empty(), "{what}: head logits without a record"),
        (Some(_), None) => panic!("{what}: no head logits"),
        (None, None) => {}
    }
    if found.head_logits.is_some() {
        assert_close(
            &format!("{what}: hidden"),
            &found.hidden,
            &golden.hidden,
            LOGITS,
        );
    }
    for state in &found.states {
        let of_layer = if state.shape.len() == 2 {
            &golden.conv
        } else {
            &golden.recurrent
        };
        let expected = of_layer
            .get(&state.layer)
            .unwrap_or_else(|| panic!("{what}: {} not recorded", state.name));
        assert_close(
            &format!("{what}: {}", state.name),
            &state.values,
            expected,
            STATES,
        );
    }
    let recorded = golden.conv.len() + golden.recurrent.len();
    assert_eq!(found.states.len(), recorded, "{what}: states compared");
}

/// Greedy continuations of all prompts, one after the other and as one batch.
fn check_greedy(name: &str) {
    let goldens = golden::load(name);
    let export = Export::of(name, CheckpointOption::Update(8));
    for chunk in [1, 3, 16, 4096] {
        let model = export.load(&LoadOptions::default());
        let options = EngineOptions::default().prefill_chunk(chunk);
        let engine = Engine::new(model, &options).unwrap();
        let request = |g: &Golden| {
            Request::from_ids(g.ids.clone())
                .sampling(SamplingParams::greedy())
                .max_new_tokens(g.greedy.len() as u64)
                .ignore_eos(true)
        };
        let together = engine.generate_all(goldens.iter().map(request)).unwrap();
        let mut compared = 0;
        for (p, (golden, batched)) in goldens.iter().zip(&together).enumerate() {
            let what = format!("{name}, chunk {chunk}, prompt {p}");
            let alone = engine.generate(request(golden)).unwrap();
            let (greedy, margin) = (&golden.greedy, &golden.margin);
            compared += assert_greedy(&what, &batched.tokens, greedy, margin, TIE);
            compared += assert_greedy(&what, &alone.tokens, greedy, margin, TIE);
        }
        assert!(
            compared > goldens.len() * 16,
            "{name}: only {compared} greedy steps compared"
        );
    }
}

macro_rules! golden_cases {
    ($($case:ident: $name:literal),* $(,)?) => {
        $(mod $case {
            #[test]
            fn evaluations_agree() {
                super::check_evaluations($name);
            }

            #[test]
            fn greedy_tokens_agree() {
                super::check_greedy($name);
            }
        })*

        #[test]
        fn every_fixture_has_a_case() {
            assert_eq!([$($name),*], pawl_tests::GOLDEN_NAMES);
        }
    };
}

golden_cases! {
    qwen3_5: "qwen3_5-odd",
    lfm2: "lfm2-odd",
    llama: "llama-odd",
    qwen3: "qwen3-odd",
    rope_linear: "llama-rope-linear",
    rope_llama3: "llama-rope-llama3",
    rope_yarn: "llama-rope-yarn",
    tiny_python: "tiny-python",
}
