//! A request's tokens do not depend on its neighbours, on how its prompt is cut, or on the number of threads.
//!
//! The comparison is exact. Where two runs part all the same, the only excuse is a near tie: the case then prints the
//! decision margin and fails if it is 1e-4 or more.

#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a case stops where its expectations fail, and prints what excuses it"
)]

use pawl::{
    Completion, Engine, EngineOptions, EvaluateOptions, LoadOptions, Request, SamplingParams,
};
use pawl_builder::CheckpointOption;
use pawl_tests::export::Export;
use pawl_tests::golden::{self, Golden};

const NEW_TOKENS: u64 = 32;
const TIE: f32 = 1e-4;

/// How a run is set up.
#[derive(Clone, Copy, Debug)]
struct Setup {
    threads: usize,
    chunk: usize,
    together: bool,
}

const SETUPS: [Setup; 6] = [
    Setup {
        threads: 1,
        chunk: 4096,
        together: false,
    },
    Setup {
        threads: 2,
        chunk: 4096,
        together: false,
    },
    Setup {
        threads: 1,
        chunk: 1,
        together: true,
    },
    Setup {
        threads: 2,
        chunk: 3,
        together: true,
    },
    Setup {
        threads: 2,
        chunk: 16,
        together: false,
    },
    Setup {
        threads: 3,
        chunk: 64,
        together: true,
    },
];

fn sampled() -> [SamplingParams; 3] {
    [
        SamplingParams::greedy(),
        SamplingParams::sampled(0.8)
            .top_k(40)
            .top_p(0.95)
            .min_p(0.02)
            .seed(7),
        SamplingParams::sampled(1.3).seed(11),
    ]
}

fn run(
    export: &Export,
    goldens: &[Golden],
    params: &SamplingParams,
    setup: Setup,
) -> Vec<Completion> {
    let model = export.load(&LoadOptions::default().threads(setup.threads));
    let options = EngineOptions::default().prefill_chunk(setup.chunk);
    let engine = Engine::new(model, &options).unwrap();
    let request = |g: &Golden| {
        Request::from_ids(g.ids.clone())
            .sampling(params.clone())
            .max_new_tokens(NEW_TOKENS)
            .ignore_eos(true)
    };
    if setup.together {
        engine.generate_all(goldens.iter().map(request)).unwrap()
    } else {
        goldens
            .iter()
            .map(|g| engine.generate(request(g)).unwrap())
            .collect()
    }
}

fn check(name: &str) {
    let goldens = golden::load(name);
    let export = Export::of(name, CheckpointOption::Update(8));
    for params in sampled() {
        let expected = run(&export, &goldens, &params, SETUPS[0]);
        for setup in &SETUPS[1..] {
            let found = run(&export, &goldens, &params, *setup);
            for (p, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert_eq!(expected.tokens.len() as u64, NEW_TOKENS);
                let what = format!("{name}, {params:?}, {setup:?}, prompt {p}");
                compare(
                    &what,
                    &export,
                    &goldens[p],
                    &params,
                    (&found.tokens, &expected.tokens),
                );
            }
        }
    }
}

/// Equal, or parted at a printed near tie.
fn compare(
    what: &str,
    export: &Export,
    golden: &Golden,
    params: &SamplingParams,
    (found, expected): (&[u32], &[u32]),
) {
    let Some(at) = found.iter().zip(expected).position(|(a, b)| a != b) else {
        return assert_eq!(found, expected, "{what}");
    };
    assert!(params.is_greedy(), "{what}: sampled tokens part at {at}");
    let mut ids = golden.ids.clone();
    ids.extend_from_slice(&expected[..at]);
    let mut model = export.load(&LoadOptions::default().threads(1));
    let evaluation = model
        .evaluate(&[&ids], &EvaluateOptions::default())
        .unwrap();
    let row = evaluation[0]
        .logits
        .rchunks(evaluation[0].vocab)
        .next()
        .unwrap();
    let margin = (row[found[at] as usize] - row[expected[at] as usize]).abs();
    println!("{what}: parts at token {at} with a margin of {margin:e}");
    assert!(
        margin < TIE,
        "{what}: parts at token {at} with a margin of {margin:e}"
    );
}

#[test]
fn gated_delta_and_attention() {
    check("qwen3_5-odd");
}

#[test]
fn short_convolution_and_attention() {
    check("lfm2-odd");
}

#[test]
fn attention_only() {
    check("llama-odd");
}

#[test]
fn shipped_checkpoint() {
    check("tiny-python");
}

/// Evaluations of one sequence are equal bit for bit, alone and beside others, and for every number of threads.
#[test]
fn logits_are_equal_bit_for_bit() {
    for export in [Export::of, Export::exact] {
        check_bits(&export("qwen3_5-odd", CheckpointOption::State(4)));
    }
}

fn check_bits(export: &Export) {
    let goldens = golden::load("qwen3_5-odd");
    let sequences: Vec<&[u32]> = goldens.iter().map(|g| g.ids.as_slice()).collect();
    let mut one = export.load(&LoadOptions::default().threads(1));
    let mut two = export.load(&LoadOptions::default().threads(2));
    let options = EvaluateOptions::default().chunk(16);
    let together = two.evaluate(&sequences, &options).unwrap();
    for (sequence, together) in sequences.iter().zip(&together) {
        let alone = &one.evaluate(&[sequence], &options).unwrap()[0];
        assert_eq!(alone.logits, together.logits);
        assert_eq!(alone.head_logits, together.head_logits);
    }
}
