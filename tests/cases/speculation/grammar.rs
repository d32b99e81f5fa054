//! Texts that are held to a grammar: always of it, and the same whatever is drafted, forked or restored.

use super::{MOST, TIE, engine_of, mix, off, planned};
use pawl::{
    DraftPolicy, Engine, EngineOptions, FinishReason, Grammar, Request, Reuse, SamplingParams,
    Speculation,
};
use pawl_builder::CheckpointOption;
use pawl_tests::compare::assert_same_draws;
use pawl_tests::export::Export;
use pawl_tests::golden;
use pawl_tests::steps::Recorder;

const SCHEMA: &str = r##"{"type": "object", "properties": {
    "name": {"type": "string", "pattern": "^[a-z_]{1,12}$"},
    "arguments": {"type": "array", "items": {"$ref": "#/$defs/argument"}, "minItems": 1, "maxItems": 3},
    "lines": {"type": "integer", "minimum": 1, "maximum": 99}},
    "required": ["name", "arguments", "lines"], "additionalProperties": false,
    "$defs": {"argument": {"enum": ["self", "x", "items", "key"]}}}"##;
const CALLS: &str =
    "start: call (\"\\n\" call)*\ncall: NAME \"(\" [call (\", \" call)*] \")\"\nNAME: /[a-z]{1,8}/";
const DATE: &str = "(19|20)[0-9]{2}-(0[1-9]|1[0-2])-[0-9]{2}( [a-z]+)?";
const NEW_TOKENS: u64 = 40;

fn is_described(text: &str) -> bool {
    let Ok(value) = serde_json::from_str::<serde_json::Value>(text) else {
        return false;
    };
    let name = value["name"].as_str().unwrap_or_default();
    let arguments = value["arguments"].as_array().map_or(0, Vec::len);
    let lines = value["lines"].as_u64().unwrap_or_default();
    let small = |b: u8| b.is_ascii_lowercase() || b == b'_';
    (1..=12).contains(&name.len())
        && name.bytes().all(small)
        && (1..=3).contains(&arguments)
        && (1..=99).contains(&lines)
}

fn is_date(text: &str) -> bool {
    let (date, word) = text.split_at_checked(10).unwrap_or((text, ""));
    let parts: Vec<u32> = date
        .split('-')
        .filter_map(|part| part.parse().ok())
        .collect();
    let [year, month, _] = parts[..] else {
        return false;
    };
    let word = word.strip_prefix(' ').unwrap_or(word);
    (1900..2100).contains(&year)
        && (1..=12).contains(&month)
        && word.bytes().all(|b| b.is_ascii_lowercase())
}

fn is_calls(text: &str) -> bool {
    let mut depth = 0_i32;
    for byte in text.bytes() {
        depth += i32::from(byte == b'(') - i32::from(byte == b')');
        if depth < 0 {
            return false;
        }
    }
    depth == 0
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b"(), \n".contains(&b))
}

type Check = fn(&str) -> bool;

fn grammars() -> [(Grammar, Check); 3] {
    [
        (Grammar::json_schema(SCHEMA), is_described),
        (Grammar::regex(DATE), is_date),
        (Grammar::lark(CALLS), is_calls),
    ]
}

/// One request and what it gives without drafts.
struct Case {
    prompt: Vec<u32>,
    params: SamplingParams,
    grammar: Grammar,
    tokens: Vec<u32>,
    margins: Vec<f32>,
}

impl Case {
    fn request(&self) -> Request {
        Request::from_ids(&self.prompt[..])
            .sampling(self.params.clone())
            .grammar(self.grammar.clone())
            .max_new_tokens(NEW_TOKENS)
    }

    fn compare(&self, what: &str, found: &[u32]) -> usize {
        let expected = (&self.tokens[..], &self.margins[..]);
        assert_same_draws(what, found, expected, TIE)
    }
}

/// Every grammar, greedy and sampled, behind one of two prompts; each text is of its grammar.
fn cases(export: &Export) -> Vec<Case> {
    let recorder = Recorder::default();
    let engine = engine_of(export, 4, &off().observe_steps(recorder.clone()));
    let prompts = golden::load("tiny-python").into_iter().take(2);
    let prompts: Vec<Vec<u32>> = prompts.map(|golden| golden.ids).collect();
    let warm = |seed| SamplingParams::sampled(0.9).seed(seed);
    let mut cases = Vec::new();
    for params in [SamplingParams::greedy(), warm(1), warm(2).top_k(20)] {
        for (grammar, is_of) in grammars() {
            let at = cases.len() % prompts.len();
            for prompt in &prompts[at..=at] {
                let mut case = Case {
                    prompt: prompt.clone(),
                    params: params.clone(),
                    grammar: grammar.clone(),
                    tokens: Vec::new(),
                    margins: Vec::new(),
                };
                let handle = engine.submit(case.request()).unwrap();
                let id = handle.id();
                let found = handle.wait().unwrap();
                let ended = [FinishReason::Eos, FinishReason::Grammar].contains(&found.reason);
                assert!(!ended || is_of(&found.text), "{:?}", found.text);
                assert!(ended || found.tokens.len() as u64 == NEW_TOKENS);
                (case.tokens, case.margins) = (found.tokens, recorder.margins(id));
                cases.push(case);
            }
        }
    }
    cases
}

fn export() -> Export {
    Export::of("tiny-python", CheckpointOption::Update(8))
}

fn options(mode: Speculation, drafts: usize) -> EngineOptions {
    EngineOptions::default()
        .draft_policy(DraftPolicy::Fixed)
        .speculation(mode)
        .max_drafts(drafts)
}

/// Every source, every number of drafts, up to four at a time, with drafts of the caller's that err at any place.
#[test]
fn drafts_never_change_a_text_of_a_grammar() {
    let export = export();
    let cases = cases(&export);
    let (mut agree, mut all, mut cut) = (0, 0, 0);
    for drafts in 1..=MOST {
        for mode in [Speculation::Ngram, Speculation::Mtp, Speculation::Tree] {
            let engine = engine_of(&export, 1 + drafts % 4, &options(mode, drafts));
            let supplied = |case: &Case| {
                let wrong = move |done| (drafts, mix(done) % (drafts + 1));
                case.request()
                    .drafts(planned(case.prompt.len(), &case.tokens, wrong))
            };
            let requests = cases
                .iter()
                .flat_map(|case| [case.request(), supplied(case)]);
            let handles: Vec<_> = requests.map(|r| engine.submit(r).unwrap()).collect();
            for (index, handle) in handles.into_iter().enumerate() {
                let case = &cases[index / 2];
                let what = format!("{mode}, {drafts} drafts, {:?}", case.grammar);
                agree += case.compare(&what, &handle.wait().unwrap().tokens);
                all += case.tokens.len();
            }
            let stats = engine.speculation_stats();
            assert!(stats.accepted > 0, "{mode}: {stats:?}");
            cut += stats.forbidden;
        }
    }
    println!("{agree} of {all} tokens agree, {cut} drafts were forbidden");
    assert!(agree * 100 >= all * 99 && cut > 100);
}

/// What is generated after the first `done` tokens, given that the state holds all but the last of them.
fn go_on(engine: &Engine, case: &Case, kept: pawl::Kept) {
    let done = kept.tokens().len() + 1 - case.prompt.len();
    let prompt = [kept.tokens(), &case.tokens[done - 1..done]].concat();
    let grammar = case.grammar.clone().begun_at(case.prompt.len());
    let request = Request::from_ids(prompt)
        .sampling(case.params.clone())
        .grammar(grammar);
    let request = request.max_new_tokens(NEW_TOKENS - done as u64);
    let found = engine.generate(request.continue_from(kept)).unwrap();
    assert_eq!(found.usage.reuse, Reuse::Continued);
    let expected = (&case.tokens[done..], &case.margins[done..]);
    let _ = assert_same_draws("gone on", &found.tokens, expected, TIE);
}

/// Forked, rewound, saved and restored elsewhere: the grammar goes on behind the tokens that there are.
#[test]
fn a_state_in_the_middle_of_a_grammar_goes_on() {
    let export = export();
    let folder = tempfile::tempdir().unwrap();
    for mode in [Speculation::Off, Speculation::Mtp] {
        let options = EngineOptions::default().speculation(mode);
        let (engine, other) = (
            engine_of(&export, 4, &options),
            engine_of(&export, 4, &options),
        );
        for (index, case) in cases(&export).iter().enumerate() {
            let enough = case.tokens.len() > 8;
            let request = case.request().max_new_tokens(7).keep_state(true);
            let kept = engine.generate(request).unwrap().kept;
            let Some(kept) = kept.filter(|_| enough) else {
                continue;
            };
            let file = folder.path().join(format!("{mode}-{index}"));
            kept.save(&file).unwrap();
            go_on(&other, case, other.restore(&file).unwrap());
            let shorter = kept.rewind(case.prompt.len() + 3).unwrap();
            go_on(&engine, case, kept.fork().unwrap());
            go_on(&engine, case, shorter);
            go_on(&engine, case, kept);
        }
    }
}

/// What a caller drafts behind the end of a text, and end tokens in its middle.
#[test]
fn an_end_inside_of_drafts_is_one_where_the_text_may_end() {
    let export = export();
    let cases = cases(&export);
    let engine = engine_of(&export, 1, &options(Speculation::Ngram, MOST));
    let eos = engine
        .tokenizer()
        .unwrap()
        .token_to_id("<|im_end|>")
        .unwrap();
    for case in &cases {
        for at in [1, 6, case.tokens.len() - 1] {
            let (mut known, prompt) = (case.tokens.clone(), case.prompt.len());
            known.insert(at.min(known.len()), eos);
            let drafts = move |tokens: &[u32], most: usize| -> Vec<u32> {
                known
                    .iter()
                    .skip(tokens.len() - prompt)
                    .take(most)
                    .copied()
                    .collect()
            };
            let found = engine.generate(case.request().drafts(drafts)).unwrap();
            case.compare("an end among drafts", &found.tokens);
            // Without end tokens a text goes on, and ends where nothing more may follow.
            let ignoring = case.request().ignore_eos(true).max_new_tokens(60);
            let found = engine.generate(ignoring).unwrap();
            let whole = found.reason == FinishReason::Grammar;
            assert!(whole || found.tokens.len() == 60, "{:?}", found.reason);
        }
    }
}
