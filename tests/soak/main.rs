//! A long run of requests of every kind on one engine: nothing may be left over, and memory may not grow.
//!
//! `cargo xtask soak [--requests N]` builds and runs it. It needs `/proc`, for the resident memory of this process.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a run that cannot go on stops, and a report is printed"
)]

use fastrand::Rng;
use pawl::{
    Engine, EngineOptions, Event, Kept, LoadOptions, Request, RequestHandle, SamplingParams,
};
use pawl_builder::CheckpointOption;
use pawl_tests::export::Export;
use pawl_tests::golden;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Requests of one round; rounds begin and end with an idle engine.
const ROUND: usize = 40;
/// Requests after which the engine has seen every kind and its buffers are as large as they get, as a part of all.
const WARM_UP: (usize, usize) = (1, 4);
/// How much resident memory may grow after that.
const GROWTH: f64 = 1.02;
/// How long requests that nobody waits for may take to end.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longest prompt, and most new tokens.
const LONGEST: (usize, u64) = (320, 48);
/// Ids from here on are special.
const TEXT_IDS: u32 = 2000;

fn main() -> ExitCode {
    let requests = std::env::args().nth(1).and_then(|count| count.parse().ok());
    let requests: usize = requests.unwrap_or(2000);
    let export = Export::of("tiny-python", CheckpointOption::Update(8));
    // Fewer slots and blocks than the requests of a round could use: they queue, and kept states are evicted.
    let model = export.load(&LoadOptions::default().max_batch_size(8).kv_blocks(160));
    let engine = Engine::new(model, &EngineOptions::default()).unwrap();
    let mut soak = Soak::new(engine);
    soak.widest();
    let mut resident = Vec::new();
    while soak.submitted < requests {
        soak.round(ROUND.min(requests - soak.submitted));
        resident.push((soak.submitted, resident_kib()));
    }
    soak.report();
    let flat = is_flat(&resident, requests * WARM_UP.0 / WARM_UP.1);
    match soak.is_empty() && flat {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

struct Soak {
    engine: Engine,
    random: Rng,
    prompts: Vec<Vec<u32>>,
    kept: Vec<Kept>,
    submitted: usize,
    ends: std::collections::BTreeMap<String, usize>,
}

impl Soak {
    fn new(engine: Engine) -> Self {
        let goldens = golden::load("tiny-python");
        Self {
            engine,
            random: Rng::with_seed(1),
            prompts: goldens.into_iter().map(|golden| golden.ids).collect(),
            kept: Vec::new(),
            submitted: 0,
            ends: std::collections::BTreeMap::new(),
        }
    }

    /// Runs the largest steps that there can be: the buffers that they need would come at any time otherwise.
    fn widest(&mut self) {
        let request = |token: usize| {
            let ids = vec![u32::try_from(token).unwrap_or_default(); LONGEST.0 + 1];
            let request = Request::from_ids(ids).sampling(SamplingParams::sampled(0.9).top_k(50));
            request.max_new_tokens(LONGEST.1).ignore_eos(true)
        };
        let handles: Vec<_> = (1..=ROUND)
            .map(|token| self.engine.submit(request(token)).unwrap())
            .collect();
        for handle in handles {
            assert!(handle.wait().is_ok());
        }
    }

    /// Submits requests, disturbs some, and waits for all.
    fn round(&mut self, requests: usize) {
        let mut handles = Vec::new();
        for _ in 0..requests {
            let request = self.request();
            handles.push(self.engine.submit(request).unwrap());
            self.submitted += 1;
            // What is in the queue and what runs differ from time to time.
            if self.random.u8(..) < 64 {
                let next = handles.swap_remove(self.random.usize(..handles.len()));
                self.finish(next);
            }
        }
        for handle in handles {
            self.finish(handle);
        }
        self.kept.retain(|kept| kept.is_held());
        let most = self.random.usize(..6);
        self.kept.truncate(most);
    }

    /// A prompt of any length, greedy or sampled, fresh or continued.
    fn request(&mut self) -> Request {
        let random = &mut self.random;
        let base = self
            .kept
            .len()
            .checked_sub(1)
            .filter(|_| random.u8(..) < 96);
        let kept = base.map(|last| self.kept.swap_remove(random.usize(..=last)));
        let mut ids = match &kept {
            Some(kept) if kept.tokens().len() < LONGEST.0 => kept.tokens().to_vec(),
            _ => random.choice(&self.prompts).unwrap().clone(),
        };
        let length = random.usize(1..=LONGEST.0);
        let more = length.saturating_sub(ids.len()).max(1);
        ids.extend((0..more).map(|_| random.u32(..TEXT_IDS)));
        let params = match random.bool() {
            true => SamplingParams::greedy(),
            false => SamplingParams::sampled(0.9).top_k(50).seed(random.u64(..)),
        };
        Request::from_ids(ids)
            .sampling(params)
            .max_new_tokens(random.u64(1..=LONGEST.1))
            .ignore_eos(random.bool())
            .stop("\n\n\n")
            .keep_state(random.u8(..) < 80)
            .continue_from(kept)
    }

    /// Waits for the end, cancels before or after some tokens, or walks away.
    fn finish(&mut self, mut handle: RequestHandle) {
        match self.random.u8(..) {
            0..32 => handle.cancel(),
            32..64 => {
                let seen = self.random.usize(1..6);
                let _ = handle.by_ref().take(seen).count();
                handle.cancel();
            }
            64..80 => return self.count("dropped"),
            80.. => {}
        }
        for event in handle {
            if let Event::Finished {
                reason,
                kept,
                error,
                ..
            } = event
            {
                assert!(error.is_none(), "{error:?}");
                self.kept.extend(kept);
                self.count(&reason.to_string());
            }
        }
    }

    fn count(&mut self, end: &str) {
        *self.ends.entry(end.to_owned()).or_default() += 1;
    }

    fn report(&self) {
        let ends: Vec<String> = self
            .ends
            .iter()
            .map(|(end, n)| format!("{n} {end}"))
            .collect();
        println!("{} requests: {}", self.submitted, ends.join(", "));
        println!("{} kept states evicted", self.engine.kept_states().evicted);
    }

    /// Whether nothing is held any more.
    fn is_empty(&mut self) -> bool {
        self.kept.clear();
        // Requests that were walked away from end in their own time, and one that never does is a leak.
        let start = Instant::now();
        while self.engine.unfinished() > 0 {
            if start.elapsed() > PATIENCE {
                println!("{} requests do not end", self.engine.unfinished());
                return false;
            }
            std::thread::yield_now();
        }
        let usage = self.engine.pool_usage().unwrap();
        println!("{usage:?}");
        let kept = self.engine.kept_states().held;
        kept == 0
            && usage.residents == 0
            && usage.free_slots == usage.slots
            && usage.free_blocks == usage.blocks
            && usage.free_head_blocks == usage.head_blocks
    }
}

/// Whether memory stays where it was after the warm-up. Prints how it went.
fn is_flat(resident: &[(usize, u64)], warm_up: usize) -> bool {
    let (warming, after): (Vec<_>, Vec<_>) = resident.iter().partition(|(n, _)| *n <= warm_up);
    let largest = |samples: &[&(usize, u64)]| samples.iter().map(|(_, kib)| *kib).max();
    let (Some(before), Some(most)) = (largest(&warming), largest(&after)) else {
        println!("too few requests to compare memory");
        return false;
    };
    #[expect(clippy::cast_precision_loss, reason = "KiB of a process are exact")]
    let ratio = most as f64 / before as f64;
    println!(
        "resident: {before} KiB after {warm_up} requests, at most {most} KiB later: {ratio:.4}"
    );
    ratio <= GROWTH
}

/// Resident memory of this process.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a system with /proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number
        .and_then(|number| number.parse().ok())
        .expect("a number of KiB")
}
