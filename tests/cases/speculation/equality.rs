//! On equals off, token for token, on every golden model.

use super::{BOTH, MOST, TIE, engine_of, mix, off, planned, request};
use pawl::{DraftPolicy, EngineOptions, Request, SamplingParams, Speculation};
use pawl_builder::CheckpointOption;
use pawl_tests::compare::assert_same_draws;
use pawl_tests::export::Export;
use pawl_tests::golden;
use pawl_tests::steps::Recorder;

const NEW_TOKENS: u64 = 24;
/// Tokens of one prompt per step, by number of drafts less one.
const CHUNKS: [usize; MOST] = [4096, 5, 16, 1, 64, 33, 4096];

fn samplers() -> [SamplingParams; 5] {
    let warm = || SamplingParams::sampled(0.8).seed(5);
    [
        SamplingParams::greedy(),
        warm(),
        warm().top_k(20),
        warm().top_p(0.9),
        warm().min_p(0.05),
    ]
}

/// One request and what it gives without drafts.
pub(super) struct Case {
    pub(super) prompt: Vec<u32>,
    params: SamplingParams,
    pub(super) tokens: Vec<u32>,
    margins: Vec<f32>,
}

impl Case {
    pub(super) fn plain(&self) -> Request {
        request(&self.prompt, &self.params, NEW_TOKENS)
    }

    /// The request with drafts that know the text and err at one position of each row, or at none.
    fn supplied(&self, drafts: usize) -> Request {
        let wrong = move |done| (drafts, mix(done) % (drafts + 1));
        self.plain()
            .drafts(planned(self.prompt.len(), &self.tokens, wrong))
    }

    pub(super) fn compare(&self, what: &str, found: &[u32], tally: &mut Tally) {
        let (prompt, params) = (self.prompt.len(), &self.params);
        let what = format!("{what}, prompt of {prompt} tokens, {params:?}");
        let expected = (&self.tokens[..], &self.margins[..]);
        tally.agree += assert_same_draws(&what, found, expected, TIE);
        tally.all += self.tokens.len();
    }
}

/// Five prompts of different lengths, each with every sampler.
pub(super) fn cases(name: &str, export: &Export) -> Vec<Case> {
    let goldens = golden::load(name);
    let longest = goldens
        .iter()
        .map(|g| &g.ids)
        .max_by_key(|ids| ids.len())
        .unwrap();
    let cuts =
        [longest.len(), 48, 17, 5, 1].map(|length| longest[..length.min(longest.len())].to_vec());
    let recorder = Recorder::default();
    let engine = engine_of(export, 5, &off().observe_steps(recorder.clone()));
    let both = samplers()
        .into_iter()
        .flat_map(|params| cuts.clone().map(|cut| (cut, params.clone())));
    let both: Vec<_> = both.collect();
    let handles: Vec<_> = both
        .iter()
        .map(|(prompt, params)| engine.submit(request(prompt, params, NEW_TOKENS)).unwrap())
        .collect();
    let ended = handles
        .into_iter()
        .map(|handle| (handle.id(), handle.wait().unwrap().tokens));
    let ended: Vec<_> = ended.collect();
    let cases = both.into_iter().zip(ended);
    cases
        .map(|((prompt, params), (id, tokens))| Case {
            prompt,
            params,
            tokens,
            margins: recorder.margins(id),
        })
        .collect()
}

/// Tokens that agree, and all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    agree: usize,
    all: usize,
}

impl Tally {
    pub(super) fn counts(self) -> (usize, usize) {
        (self.agree, self.all)
    }
}

/// Every number of drafts, every source, alone and five at a time. Requests that wait join while others draft.
fn check(name: &str, forms: &[CheckpointOption]) {
    for form in forms {
        let export = Export::of(name, *form);
        let cases = cases(name, &export);
        let mut tally = Tally::default();
        for (drafts, chunk) in (1..=MOST).zip(CHUNKS) {
            for batch in [5, 1] {
                let what =
                    format!("{name}, {form:?}, {drafts} drafts, chunk {chunk}, batch {batch}");
                let options = EngineOptions::default()
                    .draft_policy(DraftPolicy::Fixed)
                    .max_drafts(drafts)
                    .prefill_chunk(chunk);
                check_sources(&what, &export, (batch, &options), &cases, &mut tally);
            }
        }
        let Tally { agree, all } = tally;
        println!("{name}, {form:?}: {agree} of {all} tokens agree");
        assert!(
            agree * 100 >= all * 99,
            "{name}, {form:?}: excuses are exceptions"
        );
    }
}

/// The engine's own drafts, lookups alone and behind the head's where those are the head's, and drafts that the caller
/// supplies.
fn check_sources(
    what: &str,
    export: &Export,
    (batch, options): (usize, &EngineOptions),
    cases: &[Case],
    tally: &mut Tally,
) {
    let on = engine_of(export, batch, options);
    let plain = || cases.iter().map(Case::plain);
    let drafts = options.max_drafts.unwrap_or(MOST);
    let supplied = cases.iter().map(|case| case.supplied(drafts));
    let mut runs = vec![
        ("own drafts", on.generate_all(plain()).unwrap()),
        ("supplied drafts", on.generate_all(supplied).unwrap()),
    ];
    let stats = on.speculation_stats();
    let mixed = stats.accepted > 0 && stats.accepted < stats.evaluated;
    assert!(mixed, "{what}: {stats:?}");
    if on.speculation().mode == Speculation::Mtp {
        let lookup = options.clone().speculation(Speculation::Ngram);
        let looking = engine_of(export, batch, &lookup);
        runs.push(("lookup", looking.generate_all(plain()).unwrap()));
        let both = options.clone().speculation(Speculation::Auto);
        let both = engine_of(export, batch, &both);
        runs.push(("head, then lookup", both.generate_all(plain()).unwrap()));
    }
    for (source, found) in runs {
        let what = format!("{what}, {source}");
        for (case, found) in cases.iter().zip(found) {
            case.compare(&what, &found.tokens, tally);
        }
    }
}

#[test]
fn gated_delta_attention_and_a_head() {
    check("qwen3_5-odd", &BOTH);
}

#[test]
fn short_convolution_and_attention() {
    check("lfm2-odd", &BOTH);
}

#[test]
fn the_shipped_checkpoint_with_transitions() {
    check("tiny-python", &BOTH[..1]);
}

#[test]
fn the_shipped_checkpoint_with_states() {
    check("tiny-python", &BOTH[1..]);
}

#[test]
fn attention_only() {
    for name in ["llama-odd", "qwen3-odd"] {
        check(name, &[CheckpointOption::None]);
    }
}

#[test]
fn scaled_positions() {
    for name in ["llama-rope-linear", "llama-rope-llama3", "llama-rope-yarn"] {
        check(name, &[CheckpointOption::None]);
    }
}
