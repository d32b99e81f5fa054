//! What the commit of a partial accept adds to a verify step of four rows: drafts of the caller are all right for two steps and
//! wrong at one position for the next two, so that each kind of step follows each.
//!
//! A state of a kept prefix is made by the operator that reads it in the next step, so that what a partial accept adds is what
//! its commit takes longer than that of a step that keeps all, and what the run after it takes longer than one after those.
//!
//! `cargo bench -p pawl-tests --bench commit [-- TOKENS]` prints medians per step, and what a partial accept adds to one.

#![allow(
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and stops where its model cannot be run"
)]

use pawl::{
    DraftPolicy, Engine, EngineOptions, LoadOptions, ObservedStep, Request, SamplingParams,
    Speculation,
};
use pawl_builder::CheckpointOption;
use pawl_tests::export::Export;
use pawl_tests::random::RandomHybrid;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const ROWS: usize = 4;
const DRAFTS: usize = 3;
/// Tokens that a row keeps where all drafts are right.
const ALL: usize = DRAFTS + 1;
/// The position of the wrong draft in each wrong step, in turn.
const WRONG: [usize; 3] = [0, 1, 2];

/// What was measured of one step.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// Tokens that each row kept; 0 when rows differ.
    kept: usize,
    /// Of the step before.
    before: usize,
    whole: Duration,
    run: Duration,
    commit: Duration,
}

/// All steps, and how many there were: the drafts of the next one depend on it.
#[derive(Debug, Default)]
struct Record {
    count: AtomicUsize,
    steps: Mutex<Vec<Step>>,
}

impl Record {
    /// Keeps the times of a step in which all rows draft.
    fn add(&self, step: &ObservedStep<'_>, whole: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let rows = step.rows();
        if rows.len() != ROWS || rows.iter().any(|row| row.drafts() != DRAFTS) {
            return;
        }
        let kept = rows[0].kept();
        let alike = rows.iter().all(|row| row.kept() == kept);
        let mut steps = self.steps.lock().unwrap();
        let before = steps.last().map_or(0, |step| step.kept);
        steps.push(Step {
            kept: if alike { kept } else { 0 },
            before,
            whole,
            run: step.times().run,
            commit: step.times().commit,
        });
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let measured = arguments.iter().any(|argument| argument == "--bench");
    let tokens = arguments.iter().find_map(|argument| argument.parse().ok());
    // Without `--bench` this is a test that the benchmark still runs.
    let (tokens, random) = if measured {
        (tokens.unwrap_or(800), RandomHybrid::TWELVE_LAYERS)
    } else {
        (24, RandomHybrid::SMALL)
    };
    for checkpoints in [CheckpointOption::Update(8), CheckpointOption::State(8)] {
        let export = Export::of("tiny-python", checkpoints);
        measure(&format!("tiny-python {checkpoints}"), &export, tokens);
    }
    let folder = tempfile::tempdir().unwrap();
    random.write(folder.path());
    let export = Export::with(folder.path(), |options| {
        options.checkpoints = CheckpointOption::Update(8);
    });
    let name = format!("random, {} layers, update:8", random.layers);
    measure(&name, &export, tokens);
}

fn measure(name: &str, export: &Export, tokens: usize) {
    let texts = plain(export, tokens);
    let record = Arc::new(Record::default());
    let options = EngineOptions::default()
        .draft_policy(DraftPolicy::Fixed)
        .speculation(Speculation::Ngram)
        .max_drafts(DRAFTS);
    let options = options.observe_steps({
        let (record, last) = (Arc::clone(&record), Mutex::new(Instant::now()));
        move |step: &ObservedStep<'_>| {
            let mut last = last.lock().unwrap();
            record.add(step, last.elapsed());
            *last = Instant::now();
        }
    });
    let engine = Engine::new(export.load(&LoadOptions::default()), &options).unwrap();
    let requests = texts.into_iter().map(|text| {
        let request = request(&text[..1], tokens);
        request.drafts(drafts(text, Arc::clone(&record)))
    });
    let handles: Vec<_> = requests
        .map(|request| engine.submit(request).unwrap())
        .collect();
    for handle in handles {
        handle.wait().unwrap();
    }
    report(name, &record.steps.lock().unwrap());
}

/// The text of each row without drafts.
fn plain(export: &Export, tokens: usize) -> Vec<Vec<u32>> {
    let options = EngineOptions::default()
        .draft_policy(DraftPolicy::Fixed)
        .speculation(Speculation::Off);
    let engine = Engine::new(export.load(&LoadOptions::default()), &options).unwrap();
    let prompts = (0..ROWS).map(|row| vec![u32::try_from(10 + row).unwrap()]);
    let submit = |prompt: Vec<u32>| (engine.submit(request(&prompt, tokens)).unwrap(), prompt);
    let running: Vec<_> = prompts.map(submit).collect();
    running
        .into_iter()
        .map(|(handle, prompt)| [prompt, handle.wait().unwrap().tokens].concat())
        .collect()
}

fn request(prompt: &[u32], tokens: usize) -> Request {
    Request::from_ids(prompt.to_vec())
        .sampling(SamplingParams::greedy())
        .max_new_tokens(tokens as u64)
        .ignore_eos(true)
}

/// Drafts of a known text: right in two steps, wrong at one position in the next two, and so on. Rows of a step agree, as
/// all look at the count of steps.
fn drafts(text: Vec<u32>, record: Arc<Record>) -> impl Fn(&[u32], usize) -> Vec<u32> {
    move |tokens, most| {
        let mut drafts: Vec<u32> = text.iter().skip(tokens.len()).take(most).copied().collect();
        let step = record.count.load(Ordering::Relaxed);
        if step % 4 >= 2 {
            let at = WRONG[step / 4 % WRONG.len()];
            if let Some(draft) = drafts.get_mut(at) {
                *draft = if *draft == 5 { 6 } else { 5 };
            }
        }
        drafts
    }
}

fn report(name: &str, steps: &[Step]) {
    println!(
        "{name}: {} steps of {ROWS} rows and {DRAFTS} drafts",
        steps.len()
    );
    println!("  kept  before  steps   step us    run us  commit us");
    let [all, part] = [ALL..=ALL, 1..=DRAFTS];
    let of = |kept: &RangeInclusive<usize>, before: &RangeInclusive<usize>| {
        times(steps, |step| {
            kept.contains(&step.kept) && before.contains(&step.before)
        })
    };
    for kept in [&all, &part] {
        for before in [&all, &part] {
            let (some, name) = (
                of(kept, before),
                |kept| if kept == &all { "all" } else { "part" },
            );
            println!(
                "  {:>4}  {:>6} {:>6} {:>9.1} {:>9.1} {:>10.2}",
                name(kept),
                name(before),
                some.count,
                some.whole,
                some.run,
                some.commit
            );
        }
    }
    let any = 1..=ALL;
    let usual = of(&all, &all);
    let commit = of(&part, &any).commit - of(&all, &any).commit;
    let run = of(&any, &part).run - of(&any, &all).run;
    println!(
        "  a partial accept adds {commit:.1} us to its commit, {run:.1} us to the next run: {:.2} % of a step of {:.1} us",
        100.0 * (commit + run) / usual.whole,
        usual.whole
    );
}

/// Medians of some steps, in microseconds.
struct Times {
    count: usize,
    whole: f64,
    run: f64,
    commit: f64,
}

fn times(steps: &[Step], wanted: impl Fn(&Step) -> bool) -> Times {
    let some: Vec<&Step> = steps.iter().filter(|step| wanted(step)).collect();
    let median = |of: fn(&Step) -> Duration| {
        let mut sorted: Vec<Duration> = some.iter().map(|step| of(step)).collect();
        sorted.sort();
        let middle = sorted.get(sorted.len() / 2);
        middle.map_or(f64::NAN, |middle| middle.as_secs_f64() * 1e6)
    };
    Times {
        count: some.len(),
        whole: median(|step| step.whole),
        run: median(|step| step.run),
        commit: median(|step| step.commit),
    }
}
