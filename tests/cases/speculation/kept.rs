//! Every number of kept tokens, in every form, and what may follow it: a step without drafts, an end token and a stop
//! string inside accepted drafts, a prompt in the same step.
//!
//! Random models never agree with their own heads, so the drafts are told what to be.

use super::{BOTH, MOST, engine, off, planned, request};
use pawl::{Completion, DraftPolicy, Engine, EngineOptions, FinishReason, Request, SamplingParams};
use pawl_builder::CheckpointOption;
use pawl_tests::export::{Export, word};
use pawl_tests::golden;
use pawl_tests::steps::{Recorder, RowRecord};
use std::collections::BTreeMap;

const NEW_TOKENS: usize = 120;
/// Accepted drafts before the end inside a row.
const BEFORE_END: usize = 3;

/// A request whose text is known.
struct Known {
    export: Export,
    prompt: Vec<u32>,
    text: Vec<u32>,
}

impl Known {
    fn new(name: &str, form: CheckpointOption) -> Self {
        let export = Export::of(name, form);
        let prompts = golden::load(name).into_iter().map(|golden| golden.ids);
        let prompt = prompts.min_by_key(Vec::len).unwrap();
        let engine = engine(&export, &off());
        let asked = request(&prompt, &params(), NEW_TOKENS as u64);
        let text = engine.generate(asked).unwrap().tokens;
        Self {
            export,
            prompt,
            text,
        }
    }

    /// The request, with drafts that make its steps what `steps` says: drafts and how many of them are right.
    fn scripted(&self, steps: &[(usize, usize)]) -> Request {
        let mut plan = BTreeMap::new();
        let mut done = 1;
        for (drafts, right) in steps {
            plan.insert(done, (*drafts, *right));
            done += right + 1;
        }
        let plan = move |done: usize| plan.get(&done).copied().unwrap_or((0, 0));
        let known = planned(self.prompt.len(), &self.text, plan);
        self.plain().drafts(known)
    }

    fn plain(&self) -> Request {
        Request::from_ids(self.prompt.clone())
            .sampling(params())
            .max_new_tokens(NEW_TOKENS as u64)
    }

    /// The first token, well after the start, that has not been drawn before.
    fn end(&self) -> usize {
        let fresh = |at: &usize| !self.text[..*at].contains(&self.text[*at]);
        let room = NEW_TOKENS - MOST;
        (2 * MOST + 2..room)
            .find(fresh)
            .expect("a token that comes late")
    }

    /// One request per number of kept tokens: a row that keeps so many, then a row of right drafts that reaches over the
    /// end.
    fn ending(&self, change: impl Fn(Request) -> Request) -> Vec<Request> {
        let start = self.end() - BEFORE_END;
        let ask = |kept: usize| {
            let mut steps = vec![(0, 0); start - kept - 1];
            steps.extend([(MOST, kept - 1), (MOST, MOST)]);
            change(self.scripted(&steps))
        };
        (1..=MOST + 1).map(ask).collect()
    }
}

fn params() -> SamplingParams {
    SamplingParams::sampled(1.0).seed(3)
}

/// An engine that drafts as much as it can, and its record.
fn watched(export: &Export, chunk: usize) -> (Engine, Recorder) {
    let recorder = Recorder::default();
    let options = EngineOptions::default()
        .draft_policy(DraftPolicy::Fixed)
        .max_drafts(MOST)
        .prefill_chunk(chunk)
        .observe_steps(recorder.clone());
    (engine(export, &options), recorder)
}

/// Runs requests side by side; each with the rows it ran.
fn run(
    (engine, recorder): &(Engine, Recorder),
    requests: Vec<Request>,
) -> Vec<(Completion, Vec<RowRecord>)> {
    let submitted = requests
        .into_iter()
        .map(|asked| engine.submit(asked).unwrap());
    let handles: Vec<_> = submitted.collect();
    let ended = handles
        .into_iter()
        .map(|handle| (handle.id(), handle.wait().unwrap()));
    ended
        .map(|(id, ended)| (ended, recorder.rows(id)))
        .collect()
}

fn check(name: &str, forms: &[CheckpointOption]) {
    for form in forms {
        let what = format!("{name}, {form:?}");
        let known = Known::new(name, *form);
        without_drafts(&what, &known);
        beside_a_prompt(name, &what, &known);
        stop_string(&what, &known);
        end_token(&what, &known);
    }
}

fn without_drafts(what: &str, known: &Known) {
    let steps = (1..=MOST + 1).flat_map(|kept| [(MOST, kept - 1), (0, 0)]);
    let steps: Vec<_> = steps.collect();
    let watched = watched(&known.export, 16);
    let (found, rows) = run(&watched, vec![known.scripted(&steps).ignore_eos(true)]).remove(0);
    assert_eq!(found.tokens, known.text, "{what}");
    for kept in 1..=MOST + 1 {
        let followed =
            |pair: &[RowRecord]| (pair[0].drafts, pair[0].kept, pair[1].drafts) == (MOST, kept, 0);
        assert!(
            rows.windows(2).any(followed),
            "{what}: {kept} kept, then no drafts"
        );
    }
}

fn beside_a_prompt(name: &str, what: &str, known: &Known) {
    let steps: Vec<_> = (1..=MOST + 1).map(|kept| (MOST, kept - 1)).collect();
    let prompts = golden::load(name).into_iter().map(|golden| golden.ids);
    let long = prompts.max_by_key(Vec::len).unwrap();
    let joining = || request(&long, &params(), 8);
    let expected = engine(&known.export, &off().prefill_chunk(1))
        .generate(joining())
        .unwrap();
    let watched = watched(&known.export, 1);
    let asked = vec![joining(), known.scripted(&steps).ignore_eos(true)];
    let found = run(&watched, asked);
    assert_eq!(found[0].0.tokens, expected.tokens, "{what}");
    assert_eq!(found[1].0.tokens, known.text, "{what}");
    for kept in 1..=MOST + 1 {
        let beside = |rows: &Vec<RowRecord>| {
            let keeps = |row: &RowRecord| (row.drafts, row.kept) == (MOST, kept);
            rows.iter().any(keeps) && rows.iter().any(|row| row.is_prefill)
        };
        assert!(
            watched.1.steps().iter().any(beside),
            "{what}: {kept} kept beside a prompt"
        );
    }
}

/// The last row of a request ended with an accepted draft, behind which nothing was run, and the row before kept what it should.
fn assert_ends_inside(what: &str, rows: &[RowRecord], kept: usize) {
    let [.., before, last] = rows else {
        panic!("{what}: {} rows", rows.len())
    };
    assert_eq!(before.kept, kept, "{what}");
    assert!(before.drafts + 1 >= kept, "{what}");
    let last = (last.drafts, last.drawn.len(), last.kept);
    assert_eq!(
        last,
        (BEFORE_END + 1, BEFORE_END + 1, BEFORE_END + 1),
        "{what}"
    );
}

fn end_token(what: &str, known: &Known) {
    let at = known.end();
    let id = known.text[at];
    known
        .export
        .edit_config(|config| config["model"]["eos_token_id"] = vec![id].into());
    let watched = watched(&known.export, 16);
    for (kept, (found, rows)) in (1..).zip(run(&watched, known.ending(|asked| asked))) {
        let what = format!("{what}: {kept} kept, then an end token");
        assert_eq!(found.reason, FinishReason::Eos, "{what}");
        assert_eq!(found.tokens, known.text[..=at], "{what}");
        assert_ends_inside(&what, &rows, kept);
    }
    let after = run(&watched, vec![known.plain().ignore_eos(true)]);
    assert_eq!(
        after[0].0.tokens, known.text,
        "{what}: places are free again"
    );
}

fn stop_string(what: &str, known: &Known) {
    let at = known.end();
    known.export.name_tokens();
    let stop = word(known.text[at]);
    let before: Vec<String> = known.text[..at].iter().map(|id| word(*id)).collect();
    let watched = watched(&known.export, 16);
    let asked = known.ending(|asked| asked.stop(&stop).ignore_eos(true));
    for (kept, (found, rows)) in (1..).zip(run(&watched, asked)) {
        let what = format!("{what}: {kept} kept, then a stop string");
        assert_eq!(found.reason, FinishReason::StopString, "{what}");
        assert_eq!(found.stop.as_ref(), Some(&stop), "{what}");
        assert_eq!(found.text.trim_end(), before.join(" "), "{what}");
        assert_eq!(found.tokens, known.text[..=at], "{what}");
        assert_ends_inside(&what, &rows, kept);
    }
}

#[test]
fn gated_delta_and_attention() {
    check("qwen3_5-odd", &BOTH);
}

#[test]
fn short_convolution_and_attention() {
    check("lfm2-odd", &BOTH);
}

#[test]
fn the_shipped_checkpoint() {
    check("tiny-python", &BOTH);
}

#[test]
fn attention_only() {
    check("llama-odd", &[CheckpointOption::None]);
}

/// Stop strings of the shipped tokenizer begin and end within tokens, which drafts may hold whole.
#[test]
fn stop_strings_cut_the_text_of_accepted_drafts() {
    let export = Export::of("tiny-python", CheckpointOption::Update(8));
    let off = engine(&export, &off());
    let on = engine(
        &export,
        &EngineOptions::default()
            .draft_policy(DraftPolicy::Fixed)
            .max_drafts(MOST),
    );
    let ask = || {
        Request::from_text("def main():\n")
            .sampling(SamplingParams::greedy())
            .max_new_tokens(60)
    };
    let whole = off.generate(ask().ignore_eos(true)).unwrap();
    let prompt = usize::try_from(whole.usage.prompt_tokens).unwrap();
    let letters: Vec<(usize, char)> = whole.text.char_indices().collect();
    for (at, _) in letters.iter().skip(4).step_by(5).take(8) {
        let stop: String = whole.text[*at..].chars().take(4).collect();
        let expected = off.generate(ask().stop(&stop)).unwrap();
        let known = planned(prompt, &whole.tokens, |_| (MOST, MOST));
        let found = on.generate(ask().stop(&stop).drafts(known)).unwrap();
        assert_eq!(found.reason, FinishReason::StopString);
        assert_eq!(
            (&found.tokens, &found.text, &found.stop),
            (&expected.tokens, &expected.text, &expected.stop)
        );
        assert!(found.stats.steps < expected.stats.steps || expected.stats.steps < 3);
    }
}
