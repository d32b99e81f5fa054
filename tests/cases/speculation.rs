//! Text with drafts equals text without, and every kept count leaves the state that plain decoding leaves.

#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a case stops where its expectations fail, and prints what excuses it"
)]

use pawl::{
    Completion, Engine, EngineOptions, FinishReason, LoadOptions, Request, SamplingParams,
    Speculation, SpeculationStats,
};
use pawl_builder::CheckpointOption;
use pawl_tests::export::Export;
use pawl_tests::golden::{self, Golden};

const NEW_TOKENS: u64 = 40;

fn samplers() -> [SamplingParams; 4] {
    let warm = || SamplingParams::sampled(0.8).seed(5);
    [
        SamplingParams::greedy(),
        warm().top_k(20),
        warm().top_p(0.9),
        warm().min_p(0.05),
    ]
}

fn request(golden: &Golden, params: &SamplingParams) -> Request {
    Request::from_ids(golden.ids.clone())
        .sampling(params.clone())
        .max_new_tokens(NEW_TOKENS)
        .ignore_eos(true)
}

fn engine(export: &Export, options: &EngineOptions) -> Engine {
    Engine::new(export.load(&LoadOptions::default()), options).unwrap()
}

/// Drafts that know the text and err at one position of each row: row after row, another.
fn scripted(text: Vec<u32>, prompt: usize) -> impl Fn(&[u32], usize) -> Vec<u32> + Send + Sync {
    move |tokens, most| {
        let done = tokens.len() - prompt;
        let known = text.get(done..).unwrap_or_default();
        let wrong = (done.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 59) % (most + 1);
        let err = |(index, token): (usize, &u32)| if index == wrong { token ^ 1 } else { *token };
        known.iter().take(most).enumerate().map(err).collect()
    }
}

/// Off and on, for every sampler and every number of drafts, alone and side by side, prompts in chunks.
fn check(name: &str, forms: &[CheckpointOption]) {
    let goldens = golden::load(name);
    for form in forms {
        let export = Export::of(name, *form);
        let off = engine(
            &export,
            &EngineOptions::default().speculation(Speculation::Off),
        );
        for params in samplers() {
            let expected: Vec<Completion> = goldens
                .iter()
                .map(|g| off.generate(request(g, &params)).unwrap())
                .collect();
            for (drafts, chunk) in [
                (1, 4096),
                (2, 5),
                (3, 16),
                (4, 1),
                (5, 64),
                (6, 33),
                (7, 4096),
            ] {
                let options = EngineOptions::default()
                    .max_drafts(drafts)
                    .prefill_chunk(chunk);
                let what = format!("{name}, {form:?}, {params:?}, {drafts} drafts, chunk {chunk}");
                check_sources(&what, &export, &goldens, &params, (&options, &expected));
            }
        }
    }
}

fn check_sources(
    what: &str,
    export: &Export,
    goldens: &[Golden],
    params: &SamplingParams,
    (options, expected): (&EngineOptions, &[Completion]),
) {
    let on = engine(export, options);
    let plain = || goldens.iter().map(|g| request(g, params));
    let told = goldens.iter().zip(expected).map(|(g, expected)| {
        request(g, params).drafts(scripted(expected.tokens.clone(), g.ids.len()))
    });
    let mut found = on.generate_all(plain()).unwrap();
    found.extend(on.generate_all(told).unwrap());
    for (p, (found, expected)) in found.iter().zip(expected.iter().cycle()).enumerate() {
        assert_eq!(found.tokens, expected.tokens, "{what}, prompt {p}");
    }
    let stats = on.speculation_stats();
    assert!(
        stats.accepted > 0 && stats.accepted < stats.evaluated,
        "{what}: {stats:?}"
    );
}

const BOTH: [CheckpointOption; 2] = [CheckpointOption::Update(8), CheckpointOption::State(8)];

#[test]
fn gated_delta_and_attention() {
    check("qwen3_5-odd", &BOTH);
}

#[test]
fn short_convolution_and_attention() {
    check("lfm2-odd", &BOTH);
}

#[test]
fn attention_only() {
    check("llama-odd", &[CheckpointOption::None]);
}

/// Every kept count from one to all occurs, in both forms, each followed by further steps, with a prompt joining later.
#[test]
fn every_kept_count_occurs() {
    for form in BOTH {
        let export = Export::of("qwen3_5-odd", form);
        let golden = &golden::load("qwen3_5-odd")[1];
        let params = SamplingParams::greedy();
        let off = engine(
            &export,
            &EngineOptions::default().speculation(Speculation::Off),
        );
        let long = || request(golden, &params).max_new_tokens(500);
        let expected = off.generate(long()).unwrap().tokens;
        let on = engine(&export, &EngineOptions::default().max_drafts(7));
        let script = scripted(expected.clone(), golden.ids.len());
        let first = on.submit(long().drafts(script)).unwrap();
        let joining: Vec<u32> = (3..90).collect();
        let second = on
            .submit(Request::from_ids(joining).max_new_tokens(9))
            .unwrap();
        let found = first.wait().unwrap();
        assert_eq!(second.wait().unwrap().tokens.len(), 9);
        assert_eq!(found.tokens, expected);
        let stats = &found.stats.speculation;
        assert_eq!(stats.by_position.len(), 7, "{stats:?}");
        for (position, (evaluated, accepted)) in stats.by_position.iter().enumerate() {
            assert!(
                *accepted > 0 && accepted < evaluated,
                "position {position}: {stats:?}"
            );
        }
    }
}

/// An end token and a stop string inside accepted drafts cut the text where plain decoding would.
#[test]
fn ends_inside_accepted_drafts() {
    let export = Export::of("tiny-python", CheckpointOption::Update(8));
    let off = engine(
        &export,
        &EngineOptions::default().speculation(Speculation::Off),
    );
    let on = engine(&export, &EngineOptions::default().max_drafts(7));
    let prompt = "def main():\n";
    let ask = || {
        Request::from_text(prompt)
            .sampling(SamplingParams::greedy())
            .max_new_tokens(60)
    };
    let whole = off.generate(ask().ignore_eos(true)).unwrap();
    for start in (4..40).step_by(5) {
        let Some((at, _)) = whole.text.char_indices().nth(start) else {
            continue;
        };
        let stop: String = whole.text[at..].chars().take(4).collect();
        let expected = off.generate(ask().stop(&stop)).unwrap();
        let known = whole.tokens.clone();
        let prompt_tokens = usize::try_from(whole.usage.prompt_tokens).unwrap();
        let told = ask()
            .stop(&stop)
            .drafts(move |tokens: &[u32], most: usize| {
                let done = tokens.len() - prompt_tokens;
                known.iter().skip(done).take(most).copied().collect()
            });
        let found = on.generate(told).unwrap();
        assert_eq!(
            (&found.tokens, &found.text),
            (&expected.tokens, &expected.text),
            "{stop:?}"
        );
        assert_eq!(
            (found.reason, &found.stop),
            (expected.reason, &expected.stop)
        );
        assert_eq!(found.reason, FinishReason::StopString);
        assert!(found.stats.steps < expected.stats.steps || expected.stats.steps < 3);
    }
    let chat = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
    let ask = || {
        Request::from_rendered(chat)
            .sampling(SamplingParams::greedy())
            .max_new_tokens(300)
    };
    let (expected, found) = (off.generate(ask()).unwrap(), on.generate(ask()).unwrap());
    assert_eq!(
        (&found.tokens, found.reason),
        (&expected.tokens, expected.reason)
    );
}

/// Nothing is bound for checkpoints unless a row drafts.
#[test]
fn plain_steps_capture_nothing() {
    let export = Export::of("qwen3_5-odd", CheckpointOption::Update(8));
    let golden = &golden::load("qwen3_5-odd")[2];
    let capturing = |options: EngineOptions, silent: bool| -> SpeculationStats {
        let engine = engine(&export, &options);
        let request = request(golden, &SamplingParams::greedy());
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
            EngineOptions::default().speculation(Speculation::Off),
            false
        )
        .capturing_steps,
        0
    );
    assert_eq!(capturing(EngineOptions::default(), true).capturing_steps, 0);
    let stats = capturing(EngineOptions::default(), false);
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
    let mtp = || EngineOptions::default().speculation(Speculation::Mtp);
    assert!(refuse(&bare, mtp()).contains("without checkpoints"));
    let small = Export::of("qwen3_5-odd", CheckpointOption::State(3));
    assert!(refuse(&small, EngineOptions::default().max_drafts(3)).contains("1 to 2"));
    let headless = Export::of("lfm2-odd", CheckpointOption::Update(8));
    assert!(refuse(&headless, mtp()).contains("no drafting head"));
    let off = engine(&bare, &EngineOptions::default());
    assert!(
        off.speculation()
            .to_string()
            .contains("without checkpoints")
    );
}
