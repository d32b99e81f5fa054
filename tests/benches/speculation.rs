//! What drafts bring on the shipped checkpoint: every arm in turn, round after round, on the golden text prompts and on
//! prompts of its own.
//!
//! `cargo bench -p pawl-tests --bench speculation [-- ROUNDS ARM...]` prints medians of decode time, ratios to `off`, and
//! what a step took. Without arms' names it runs all of them.

#![allow(
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and stops where its model cannot be run"
)]

use pawl::{
    DraftPolicy, Engine, EngineOptions, LoadOptions, Request, SamplingParams, Speculation,
    SpeculationStats,
};
use pawl_builder::CheckpointOption;
use pawl_tests::export::Export;
use pawl_tests::golden;

/// First of the ids that only chats have.
const CHAT_IDS: u32 = 2041;
/// Drafts of the arms with a fixed number.
const DRAFTS: usize = 3;
/// Prompts that the checkpoint was not trained on, between lines of dashes.
const OWN: &str = include_str!("../fixtures/prompts.txt");

/// What is compared.
const ARMS: [(&str, Speculation, DraftPolicy); 9] = [
    ("off", Speculation::Off, DraftPolicy::Fixed),
    ("ngram", Speculation::Ngram, DraftPolicy::Fixed),
    ("mtp", Speculation::Mtp, DraftPolicy::Fixed),
    ("tree", Speculation::Tree, DraftPolicy::Fixed),
    ("ngram, adaptive", Speculation::Ngram, DraftPolicy::Adaptive),
    ("mtp, adaptive", Speculation::Mtp, DraftPolicy::Adaptive),
    ("tree, adaptive", Speculation::Tree, DraftPolicy::Adaptive),
    ("auto, adaptive", Speculation::Auto, DraftPolicy::Adaptive),
    // A source that is never right.
    (WRONG, Speculation::Ngram, DraftPolicy::Adaptive),
];
const WRONG: &str = "wrong, adaptive";

/// One arm and what it took.
struct Arm {
    name: &'static str,
    engine: Engine,
    seconds: Vec<f64>,
    tokens: u64,
    steps: u64,
    sum: SpeculationStats,
}

impl Arm {
    fn new(
        export: &Export,
        (name, mode, policy): (&'static str, Speculation, DraftPolicy),
    ) -> Self {
        let mut options = EngineOptions::default()
            .draft_policy(policy)
            .speculation(mode);
        if mode != Speculation::Off && policy == DraftPolicy::Fixed {
            options = options.max_drafts(DRAFTS);
        }
        Self {
            name,
            engine: Engine::new(export.load(&LoadOptions::default()), &options).unwrap(),
            seconds: Vec::new(),
            tokens: 0,
            steps: 0,
            sum: SpeculationStats::default(),
        }
    }

    /// One round: every prompt, one after the other.
    fn run(&mut self, prompts: &[Vec<u32>], params: &SamplingParams, new_tokens: u64) {
        let mut seconds = 0.0;
        for prompt in prompts {
            let request = Request::from_ids(prompt.clone()).sampling(params.clone());
            let mut request = request.max_new_tokens(new_tokens).ignore_eos(true);
            if self.name == WRONG {
                // Ids that only chats have do not come in code.
                request = request.drafts(|_: &[u32], most: usize| vec![CHAT_IDS + 1; most]);
            }
            let completion = self.engine.generate(request).unwrap();
            seconds += completion.stats.decode_seconds;
            self.tokens += completion.usage.generated_tokens;
            self.steps += completion.stats.steps;
            self.sum.merge(&completion.stats.speculation);
        }
        self.seconds.push(seconds);
    }

    fn warm_up(&mut self, prompts: &[Vec<u32>], params: &SamplingParams, new_tokens: u64) {
        self.run(prompts, params, new_tokens);
        self.seconds.clear();
        (self.tokens, self.steps) = (0, 0);
        self.sum = SpeculationStats::default();
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
    if let Some(unknown) = arguments.iter().find(|argument| !is_known(argument)) {
        println!(
            "{unknown:?} is no arm; there are {:?}",
            ARMS.map(|(name, ..)| name)
        );
        std::process::exit(2);
    }
    // Without `--bench` this is a test that the benchmark still runs.
    let (rounds, new_tokens) = if measured {
        (rounds.unwrap_or(7), 192)
    } else {
        (1, 8)
    };
    let export = Export::of("tiny-python", CheckpointOption::Update(8));
    let sets = [
        ("golden prompts", golden_prompts()),
        ("own prompts", own_prompts(&export)),
    ];
    for (set, prompts) in sets {
        for (name, params) in [
            ("greedy", SamplingParams::greedy()),
            ("temperature 0.8", SamplingParams::sampled(0.8).seed(1)),
        ] {
            let named = ARMS
                .into_iter()
                .filter(|(name, _, _)| is_named(&arguments, name));
            let mut arms: Vec<_> = named.map(|arm| Arm::new(&export, arm)).collect();
            // Adaptive arms learn first; nobody's time counts.
            arms.iter_mut()
                .for_each(|arm| arm.warm_up(&prompts, &params, new_tokens));
            for _ in 0..rounds {
                for arm in &mut arms {
                    arm.run(&prompts, &params, new_tokens);
                }
            }
            report(&format!("{set}, {name}"), &arms);
        }
    }
}

/// Whether an argument is a flag of the harness, a number of rounds or the name of an arm.
fn is_known(argument: &str) -> bool {
    let arm = ARMS.iter().any(|(name, ..)| *name == argument);
    arm || argument.starts_with('-') || argument.parse::<usize>().is_ok()
}

/// Whether the command line asks for an arm: by its name, or by naming none. What is compared against always runs.
fn is_named(arguments: &[String], name: &str) -> bool {
    let named = |argument: &&String| ARMS.iter().any(|(name, _, _)| name == argument);
    let mut names = arguments.iter().filter(named).peekable();
    name == "off" || names.peek().is_none() || names.any(|argument| argument == name)
}

fn golden_prompts() -> Vec<Vec<u32>> {
    let goldens = golden::load("tiny-python").into_iter();
    let ids = goldens.map(|golden| golden.ids);
    ids.filter(|ids| ids.iter().all(|id| *id < CHAT_IDS))
        .collect()
}

fn own_prompts(export: &Export) -> Vec<Vec<u32>> {
    let options = EngineOptions::default().speculation(Speculation::Off);
    let engine = Engine::new(export.load(&LoadOptions::default()), &options).unwrap();
    let tokenizer = engine.tokenizer().unwrap();
    let texts = OWN.split("\n-----\n");
    texts
        .map(|text| tokenizer.encode(text, true).unwrap())
        .collect()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of a benchmark are small"
)]
fn report(name: &str, arms: &[Arm]) {
    println!(
        "{name}: {DRAFTS} drafts where the number is fixed, {} rounds",
        arms[0].seconds.len()
    );
    println!(
        "  {:<16} {:>9} {:>9} {:>7} {:>11} {:>9} {:>9} {:>9}",
        "", "tokens/s", "x off", "tok/st", "drafts/st", "branched", "run us", "draft us"
    );
    let off = arms[0].median();
    for arm in arms {
        let (median, rounds) = (arm.median(), arm.seconds.len() as f64);
        let steps = arm.steps as f64;
        let micros = |time: std::time::Duration| time.as_secs_f64() * 1e6 / steps;
        println!(
            "  {:<16} {:>9.0} {:>9.2} {:>7.2} {:>11.2} {:>9.2} {:>9.0} {:>9.0}",
            arm.name,
            arm.tokens as f64 / rounds / median,
            off / median,
            arm.tokens as f64 / steps,
            arm.sum.proposed as f64 / steps,
            arm.sum.branched as f64 / steps,
            micros(arm.sum.run_time),
            micros(arm.sum.draft_time),
        );
    }
}
