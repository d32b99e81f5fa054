//! Random scripts of submitting, drafting, cancelling, continuing, forking, rewinding, saving, restoring and dropping, on few
//! slots and blocks: every answer is that of a run from nothing, and after every step the fixed state of every row is what
//! decoding its tokens one by one leaves.
//!
//! `PAWL_TEST_EFFORT=50` runs fifty times as many.

use super::{engine, greedy, options, words};
use pawl::{
    Engine, ErrorCode, Event, Kept, KeptError, LoadOptions, RequestHandle, RequestId, Speculation,
    StateFileError, StateTensor,
};
use pawl_builder::CheckpointOption;
use pawl_tests::compare::largest_difference;
use pawl_tests::effort;
use pawl_tests::export::Export;
use pawl_tests::steps::{Recorder, RowRecord};
use std::collections::BTreeMap;
use tempfile::TempDir;

const ACTIONS: usize = 90;
/// Branches beside which there is room for requests.
const BRANCHES: usize = 3;
const LONGEST: usize = 120;
/// How far recurrent state may be off. Convolutions must not be off by a bit.
const ROUNDING: f32 = 1e-6;

/// A generator of small numbers that repeats.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// One state of a script.
struct Branch {
    kept: Kept,
    /// All tokens known after it.
    text: Vec<u32>,
}

/// A request and what it must answer.
struct Asked {
    handle: RequestHandle,
    prompt: Vec<u32>,
    expected: Vec<u32>,
    cancelled: bool,
}

/// Decodes texts one token at a time, from nothing.
struct Twin {
    engine: Engine,
    recorder: Recorder,
    /// The fixed state after some tokens.
    known: BTreeMap<Vec<u32>, Vec<StateTensor>>,
}

impl Twin {
    fn new(export: &Export) -> Self {
        let recorder = Recorder::with_state();
        let options = options().speculation(Speculation::Off).prefill_chunk(1);
        let options = options.observe_steps(recorder.clone());
        Self {
            engine: engine(export, &LoadOptions::default(), &options),
            recorder,
            known: BTreeMap::new(),
        }
    }

    fn after(&mut self, tokens: &[u32]) -> &[StateTensor] {
        if !self.known.contains_key(tokens) {
            let read = greedy(tokens).max_new_tokens(0).keep_state(true);
            self.engine.generate(read).unwrap();
            for row in self.recorder.take().into_iter().flatten() {
                let seen = tokens[..row.committed()].to_vec();
                self.known.insert(seen, row.states);
            }
        }
        &self.known[tokens]
    }
}

/// What a script has come to.
#[derive(Debug, Default)]
struct Counts {
    actions: [usize; 5],
    cancelled: usize,
    rows: usize,
    /// Rows that kept a part of what they ran.
    partial: usize,
    worst: f32,
}

struct Script {
    work: Engine,
    recorder: Recorder,
    fresh: Engine,
    twin: Twin,
    numbers: Numbers,
    branches: Vec<Branch>,
    folder: TempDir,
    counts: Counts,
}

impl Script {
    fn new(seed: u64, export: &Export, mode: Speculation) -> Self {
        let recorder = Recorder::with_state();
        let few = LoadOptions::default().max_batch_size(4).kv_blocks(16);
        let crowded = options().speculation(mode).max_scheduled_tokens(40);
        let crowded = crowded.observe_steps(recorder.clone());
        let plenty = LoadOptions::default();
        Self {
            work: engine(export, &few, &crowded),
            recorder,
            fresh: engine(export, &plenty, &options().speculation(Speculation::Off)),
            twin: Twin::new(export),
            numbers: Numbers(seed),
            branches: Vec::new(),
            folder: tempfile::tempdir().unwrap(),
            counts: Counts::default(),
        }
    }

    fn act(&mut self, what: &str) {
        let at = self.numbers.below(self.branches.len().max(1));
        // Places are left for forks.
        let action = match self.branches.len() {
            0..BRANCHES => self.numbers.below(8),
            _ => 0,
        };
        let made = match (action, self.branches.get(at)) {
            (0, Some(_)) => {
                self.branches.swap_remove(at);
                self.counts.actions[0] += 1;
                return;
            }
            (1, Some(branch)) => branch.kept.fork(),
            (2, Some(branch)) => {
                let all = branch.kept.tokens().to_vec();
                let length = 1 + self.numbers.below(all.len());
                let made = branch.kept.rewind(length);
                self.compare(what, |_| all[..length].to_vec());
                made
            }
            (3, Some(branch)) => save_and_restore(&self.work, branch, &self.folder),
            _ => return self.ask(what),
        };
        match made {
            Ok(kept) => {
                let text = kept.tokens().to_vec();
                self.branches.push(Branch { kept, text });
                self.counts.actions[action] += 1;
            }
            Err(error) => {
                let expected = [ErrorCode::StateGone, ErrorCode::NoRoom];
                assert!(expected.contains(&error.code()), "{what}: {error}");
            }
        }
    }

    /// Some requests side by side, from states and from nothing.
    fn ask(&mut self, what: &str) {
        let count = 1 + self.numbers.below(3);
        let asked: Vec<Asked> = (0..count).map(|_| self.submit()).collect();
        let texts = asked.iter().map(|asked| {
            let text = [&asked.prompt[..], &asked.expected].concat();
            (asked.handle.id(), text)
        });
        let texts: BTreeMap<RequestId, Vec<u32>> = texts.collect();
        for asked in asked {
            self.counts.cancelled += usize::from(asked.cancelled);
            let left = listen(what, asked);
            // One place is left for a copy.
            let room = (BRANCHES - 1).saturating_sub(self.branches.len());
            self.branches.extend(left.into_iter().take(room));
        }
        self.counts.actions[4] += count;
        self.compare(what, |id| texts[&id].clone());
    }

    fn submit(&mut self) -> Asked {
        let from = self.numbers.below(self.branches.len() + 1);
        let branch = self.branches.get(from);
        let kept = branch.map(|branch| branch.kept.clone());
        let old = branch.map_or(Vec::new(), |branch| branch.text.clone());
        let (topic, count) = (self.numbers.below(50), 1 + self.numbers.below(30));
        let mut prompt = [old, words(topic as u32, count as u32)].concat();
        prompt.truncate(LONGEST);
        let expected = self.fresh.generate(greedy(&prompt)).unwrap().tokens;
        let request = greedy(&prompt).keep_state(true).continue_from(kept);
        let request = match self.numbers.below(3) {
            0 => request,
            _ => request.drafts(drafts(prompt.len(), &expected, self.numbers.below(1000))),
        };
        Asked {
            handle: self.work.submit(request).unwrap(),
            prompt,
            expected,
            cancelled: self.numbers.below(4) == 0,
        }
    }

    /// Compares the state of every row since the last time. `text` is that of a request and what follows.
    fn compare(&mut self, what: &str, text: impl Fn(RequestId) -> Vec<u32>) {
        for row in self.recorder.take().into_iter().flatten() {
            let text = text(row.request);
            let expected = self.twin.after(&text[..row.committed()]);
            let RowRecord {
                past, run, kept, ..
            } = row;
            let what = format!("{what}: {kept} of {run} kept at {past}");
            assert_eq!(row.states.len(), expected.len(), "{what}");
            for (found, expected) in row.states.iter().zip(expected) {
                let off = largest_difference(&found.values, &expected.values);
                let most = if found.shape.len() == 2 {
                    0.0
                } else {
                    ROUNDING
                };
                assert!(off <= most, "{what}: {} is off by {off:e}", found.name);
                self.counts.worst = self.counts.worst.max(off);
            }
            self.counts.rows += 1;
            self.counts.partial += usize::from(kept < run);
        }
    }
}

/// Drafts that know the text: some of it, with an error now and then.
fn drafts(
    prompt: usize,
    text: &[u32],
    seed: usize,
) -> impl Fn(&[u32], usize) -> Vec<u32> + Send + Sync + use<> {
    let text = text.to_vec();
    move |tokens, most| {
        let done = tokens.len() - prompt;
        let mut numbers = Numbers((seed * 1000 + done) as u64);
        let (count, wrong) = (numbers.below(8), numbers.below(9));
        let known = text.iter().skip(done).take(count.min(most)).enumerate();
        let token = |(index, token): (usize, &u32)| token ^ u32::from(index == wrong);
        known.map(token).collect()
    }
}

fn save_and_restore(work: &Engine, branch: &Branch, folder: &TempDir) -> Result<Kept, KeptError> {
    let path = folder.path().join("x.state");
    let state = |error| {
        let StateFileError::State(error) = error else {
            panic!("{error}")
        };
        error
    };
    branch.kept.save(&path).map_err(state)?;
    work.restore(&path).map_err(state)
}

/// One answer to its end. What it left, and a fork of it while it ran.
fn listen(what: &str, asked: Asked) -> Vec<Branch> {
    let Asked {
        mut handle,
        prompt,
        expected,
        cancelled,
    } = asked;
    let (mut found, mut left) = (Vec::new(), Vec::new());
    while let Some(event) = handle.next_event() {
        match event {
            Event::Tokens { tokens, .. } => {
                if found.is_empty() {
                    left.extend(handle.fork().ok());
                }
                found.extend(tokens);
                if cancelled {
                    handle.cancel();
                }
            }
            Event::Finished { kept, error, .. } => {
                assert_eq!(error, None, "{what}");
                assert_eq!(found, expected[..found.len()], "{what}");
                assert!(cancelled || found.len() == expected.len(), "{what}");
                left.splice(0..0, kept);
            }
            other => panic!("unexpected {other:?}"),
        }
    }
    let whole = [&prompt[..], &found].concat();
    let branch = |kept: Kept| {
        assert!(whole.starts_with(kept.tokens()), "{what}");
        let text = whole.clone();
        Branch { kept, text }
    };
    left.into_iter().map(branch).collect()
}

/// Runs one script.
fn script(seed: u64, name: &str, form: CheckpointOption, mode: Speculation) -> Counts {
    let export = Export::of(name, form);
    let mut script = Script::new(seed, &export, mode);
    for step in 0..ACTIONS {
        script.act(&format!(
            "{name}, {form:?}, {mode}, seed {seed}, action {step}"
        ));
    }
    script.branches.clear();
    let last = script.work.generate(greedy(&[5])).unwrap();
    assert_eq!(last.usage.generated_tokens, 9);
    assert_eq!(script.work.kept_states().held, 0);
    script.counts
}

/// Everything that there is to happen has happened.
fn check(all: impl Iterator<Item = Counts>) {
    let (mut sum, mut scripts) = (Counts::default(), 0);
    for counts in all {
        let actions = sum.actions.iter_mut().zip(counts.actions);
        actions.for_each(|(sum, count)| *sum += count);
        sum.cancelled += counts.cancelled;
        sum.rows += counts.rows;
        sum.partial += counts.partial;
        sum.worst = sum.worst.max(counts.worst);
        scripts += 1;
    }
    println!("{scripts} scripts: {sum:?}");
    assert!(sum.actions.iter().all(|count| *count > 0), "{sum:?}");
    assert!(sum.cancelled > 10, "{sum:?}");
    assert!(
        sum.rows > 300 * scripts && sum.partial > 20 * scripts,
        "{sum:?}"
    );
}

const FORMS: [CheckpointOption; 2] = [CheckpointOption::Update(8), CheckpointOption::State(8)];

#[test]
fn scripts_on_gated_delta_and_attention() {
    let seeds = 0..4 * effort();
    check(seeds.map(|seed| {
        let form = FORMS[seed as usize % 2];
        let mode = [Speculation::Mtp, Speculation::Ngram][seed as usize / 2 % 2];
        script(seed, "qwen3_5-odd", form, mode)
    }));
}

#[test]
fn scripts_on_short_convolution_and_attention() {
    let seeds = 0..2 * effort();
    check(seeds.map(|seed| {
        let form = FORMS[seed as usize % 2];
        script(2000 + seed, "lfm2-odd", form, Speculation::Ngram)
    }));
}

#[test]
fn scripts_on_attention_only() {
    let (seeds, none) = (0..2 * effort(), CheckpointOption::None);
    check(seeds.map(|seed| script(3000 + seed, "llama-odd", none, Speculation::Ngram)));
}
