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

/// How far the logits of a head in 8 bits may be from those in float32, in root mean squares over the vocabulary. A weight
/// is off by up to 1/254 of the largest of its block, and so is what it is multiplied with; over a row that comes to about
/// 0.8 % per projection, and half a dozen of them lie one behind the other.
const INT8_LOGITS: f64 = 0.05;
/// Share of rows for which such a head may have another best token.
const INT8_BEST: f64 = 0.05;

/// Every form of checkpoints and every cut of the prompt, alone and beside the others.
fn check_evaluations(name: &str) {
    let goldens = golden::load(name);
    let forms = [
        CheckpointOption::Update(8),
        CheckpointOption::State(4),
        CheckpointOption::None,
    ];
    for form in forms {
        let mut model = Export::exact(name, form).load(&LoadOptions::default());
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

/// A head in 8 bits is near the exact one, row by row, and nearly always has the same best token; the model beside it
/// is not touched.
fn check_int8_head(name: &str) {
    let goldens = golden::load(name);
    let form = CheckpointOption::Update(8);
    let sequences: Vec<&[u32]> = goldens.iter().map(|g| g.ids.as_slice()).collect();
    let evaluate = |export: Export| {
        let mut model = export.load(&LoadOptions::default());
        let found = model.evaluate(&sequences, &EvaluateOptions::default());
        found.unwrap()
    };
    let (int8, exact) = (
        evaluate(Export::of(name, form)),
        evaluate(Export::exact(name, form)),
    );
    let (mut rows, mut parted, mut worst) = (0_u32, 0_u32, 0.0_f64);
    for (int8, exact) in int8.iter().zip(&exact) {
        assert_eq!(int8.logits, exact.logits, "{name}: the model itself");
        let (Some(expected), Some(found)) = (&exact.head_logits, &int8.head_logits) else {
            panic!("{name}: no head logits");
        };
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.chunks(int8.vocab).zip(expected.chunks(int8.vocab)) {
            rows += 1;
            parted += u32::from(best(found) != best(expected));
            worst = worst.max(distance(found, expected));
        }
    }
    println!("{name}: {parted} of {rows} best tokens differ; {worst:.4} apart at most");
    assert!(
        rows > 50 && worst > 0.0,
        "{name}: {rows} rows, {worst} apart"
    );
    assert!(worst < INT8_LOGITS, "{name}: {worst:.4} apart");
    let share = f64::from(parted) / f64::from(rows);
    assert!(
        share < INT8_BEST,
        "{name}: {parted} of {rows} best tokens differ"
    );
}

fn best(row: &[f32]) -> Option<usize> {
    let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.map(|(index, _)| index)
}

/// Root mean square of the difference over that of the expected row.
fn distance(found: &[f32], expected: &[f32]) -> f64 {
    let square = |sum: f64, value: f32| sum + f64::from(value).powi(2);
    let differences = found.iter().zip(expected).map(|(a, b)| a - b);
    let difference = differences.fold(0.0, square);
    (difference / expected.iter().copied().fold(0.0, square)).sqrt()
}

#[test]
fn a_head_in_8_bits_is_near() {
    check_int8_head("qwen3_5-odd");
    check_int8_head("tiny-python");
}

/// The bytes of the head's own projection are part of the memory plan, and the model's are there once.
#[test]
fn a_head_in_8_bits_is_in_the_memory_plan() {
    let form = CheckpointOption::Update(8);
    let weights = |export: &Export| {
        let found = pawl::inspect(export.path(), &LoadOptions::default()).unwrap();
        let entries = found.memory.entries().iter();
        let data = entries.filter(|entry| entry.purpose.ends_with(".data`"));
        data.map(|entry| entry.bytes).collect::<Vec<u64>>()
    };
    let [int8, exact] = [Export::of, Export::exact].map(|export| {
        let export = export("tiny-python", form);
        let length = |file: &str| std::fs::metadata(export.path().join(file)).unwrap().len();
        let planned = weights(&export);
        assert_eq!(
            planned,
            [length("model.onnx.data"), length("mtp.onnx.data")]
        );
        planned
    });
    assert_eq!(int8[0], exact[0]);
    // Width of a row, and all rows of the head's matrices of that width.
    let of_rows = |width: u64, rows: u64| width * rows;
    let own = of_rows(384, 192) + of_rows(192, 768 + 1024) + of_rows(256, 192) + of_rows(512, 192);
    let projection = of_rows(192, 2048);
    let page = 4096;
    let expected = (own + projection) * 36 / 32;
    assert!(
        (expected..expected + 20 * page).contains(&int8[1]),
        "{int8:?}"
    );
    assert!(
        (own * 4..own * 4 + 20 * page).contains(&exact[1]),
        "{exact:?}"
    );
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
