//! What drafts bring on the shipped checkpoint: every mode in turn, round after round, on the golden text prompts.
//!
//! `cargo bench -p pawl-tests --bench speculation [-- ROUNDS]` prints medians of decode time, and ratios to `off`.

#![allow(
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and stops where its model cannot be run"
)]

use pawl::{DraftPolicy, Engine, EngineOptions, LoadOptions, Request, SamplingParams, Speculation};
use pawl_builder::CheckpointOption;
use pawl_tests::export::Export;
use pawl_tests::golden;

/// First of the ids that only chats have.
const CHAT_IDS: u32 = 2041;
const DRAFTS: usize = 3;
const MODES: [Speculation; 3] = [Speculation::Off, Speculation::Ngram, Speculation::Mtp];

/// One mode and what it took.
struct Arm {
    engine: Engine,
    seconds: Vec<f64>,
    tokens: u64,
    steps: u64,
}

impl Arm {
    /// One round: every prompt, one after the other.
    fn run(&mut self, prompts: &[Vec<u32>], params: &SamplingParams, new_tokens: u64) {
        let mut seconds = 0.0;
        for prompt in prompts {
            let request = Request::from_ids(prompt.clone()).sampling(params.clone());
            let request = request.max_new_tokens(new_tokens).ignore_eos(true);
            let completion = self.engine.generate(request).unwrap();
            seconds += completion.stats.decode_seconds;
            self.tokens += completion.usage.generated_tokens;
            self.steps += completion.stats.steps;
        }
        self.seconds.push(seconds);
    }

    fn median(&self) -> f64 {
        let mut sorted = self.seconds.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let measured = arguments.iter().any(|argument| argument == "--bench");
    let rounds = arguments.iter().find_map(|argument| argument.parse().ok());
    // Without `--bench` this is a test that the benchmark still runs.
    let (rounds, new_tokens) = if measured {
        (rounds.unwrap_or(7), 192)
    } else {
        (1, 8)
    };
    let export = Export::of("tiny-python", CheckpointOption::Update(8));
    let goldens = golden::load("tiny-python");
    let prompts: Vec<Vec<u32>> = goldens
        .into_iter()
        .map(|golden| golden.ids)
        .filter(|ids| ids.iter().all(|id| *id < CHAT_IDS))
        .collect();
    for (name, params) in [
        ("greedy", SamplingParams::greedy()),
        ("temperature 0.8", SamplingParams::sampled(0.8).seed(1)),
    ] {
        let mut arms = MODES.map(|mode| Arm {
            engine: engine(&export, mode),
            seconds: Vec::new(),
            tokens: 0,
            steps: 0,
        });
        for _ in 0..rounds {
            for arm in &mut arms {
                arm.run(&prompts, &params, new_tokens);
            }
        }
        report(name, &arms);
    }
}

fn engine(export: &Export, mode: Speculation) -> Engine {
    let mut options = EngineOptions::default()
        .draft_policy(DraftPolicy::Fixed)
        .speculation(mode);
    if mode != Speculation::Off {
        options = options.max_drafts(DRAFTS);
    }
    Engine::new(export.load(&LoadOptions::default()), &options).unwrap()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of a benchmark are small"
)]
fn report(name: &str, arms: &[Arm]) {
    println!("{name}, {DRAFTS} drafts, {} rounds", arms[0].seconds.len());
    let off = arms[0].median();
    for (mode, arm) in MODES.iter().zip(arms) {
        let (median, rounds) = (arm.median(), arm.seconds.len() as f64);
        println!(
            "  {:<6} {:>5.2} tokens per step {:>8.0} tokens/s {:>5.2} x off",
            format!("{mode:?}").to_lowercase(),
            arm.tokens as f64 / arm.steps as f64,
            arm.tokens as f64 / rounds / median,
            off / median
        );
    }
}
