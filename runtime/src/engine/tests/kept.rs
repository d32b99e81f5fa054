//! Random scripts of requests that leave, continue, fork, rewind, save and restore states, with failures in between:
//! after every step everything kept is what its tokens leave, and every answer is that of decoding one by one.

use super::stand_in::{Bench, Law, VOCAB};
use crate::engine::copies::CopyCommand;
use crate::engine::kept::KeptState;
use crate::engine::{EngineOptions, Kept, KeptError};
use crate::ids::RequestId;
use crate::request::{Event, Request, Reuse};
use crate::sample::SamplingParams;
use crate::settings::effort;
use crate::speculate::{DraftPolicy, Speculation};
use crate::state::audit::audit;
use crate::txn::tests::fixture::Form;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

/// The longest text of a script: two of its requests at their ceilings fill the cache.
const LONGEST: usize = 100;

/// What happens before a step. Numbers pick among what there is.
#[derive(Clone, Debug)]
enum Act {
    /// A request, from nothing or from a state, that says something new.
    Ask {
        from: Option<usize>,
        words: Vec<u32>,
        count: u64,
        sampled: bool,
    },
    Cancel(usize),
    Drop(usize),
    Fork(usize),
    ForkRunning(usize),
    /// The state of a part of another one's tokens.
    Rewind(usize, usize),
    SaveAndRestore(usize),
    /// The next step fails at one of its calls.
    Fail(usize),
    Nothing,
}

fn act() -> impl Strategy<Value = Act> {
    let token = 0..u32::try_from(VOCAB).unwrap();
    let words = prop::collection::vec(token, 1..14);
    let at = || 0usize..8;
    prop_oneof![
        5 => (prop::option::weighted(0.8, at()), words, 1u64..12, any::<bool>()).prop_map(
            |(from, words, count, sampled)| Act::Ask { from, words, count, sampled }
        ),
        1 => at().prop_map(Act::Cancel),
        1 => at().prop_map(Act::Drop),
        2 => at().prop_map(Act::Fork),
        2 => at().prop_map(Act::ForkRunning),
        2 => (at(), 1usize..100).prop_map(|(at, length)| Act::Rewind(at, length)),
        1 => at().prop_map(Act::SaveAndRestore),
        2 => (0usize..30).prop_map(Act::Fail),
        6 => Just(Act::Nothing),
    ]
}

/// A request that has not ended.
struct Asked {
    id: RequestId,
    prompt: Vec<u32>,
    expected: Vec<u32>,
    told: Vec<u32>,
}

/// A state and the tokens known after it.
struct State {
    kept: Kept,
    text: Vec<u32>,
}

struct Script {
    bench: Bench,
    asked: Vec<Asked>,
    states: Vec<State>,
    seen: BTreeSet<&'static str>,
}

impl Script {
    fn new(form: Form, mode: Speculation, drafts: usize, chunk: usize) -> Self {
        let options = EngineOptions::default()
            .draft_policy(DraftPolicy::Fixed)
            .speculation(mode)
            .prefill_chunk(chunk);
        let options = if mode == Speculation::Off {
            options
        } else {
            options.max_drafts(drafts)
        };
        Self {
            bench: Bench::new(form, &options),
            asked: Vec::new(),
            states: Vec::new(),
            seen: BTreeSet::new(),
        }
    }

    fn act(&mut self, act: &Act) {
        let state = |at: usize| at.checked_rem(self.states.len());
        let picked = match act {
            Act::Ask { from, .. } => from.and_then(state),
            Act::Drop(at) | Act::Fork(at) | Act::Rewind(at, _) | Act::SaveAndRestore(at) => {
                state(*at)
            }
            Act::Cancel(_) | Act::ForkRunning(_) | Act::Fail(_) | Act::Nothing => None,
        };
        let running = |at: usize| at.checked_rem(self.asked.len());
        match (act, picked) {
            (
                Act::Ask {
                    words,
                    count,
                    sampled,
                    ..
                },
                from,
            ) => self.ask(from, words, *count, *sampled),
            (Act::Cancel(at), _) => {
                if let Some(at) = running(*at) {
                    self.bench.core.cancel(self.asked[at].id);
                }
            }
            (Act::ForkRunning(at), _) => {
                if let Some(at) = running(*at) {
                    let asked = &self.asked[at];
                    let text = [&asked.prompt[..], &asked.expected].concat();
                    let forked = self.fork(asked.id);
                    self.hold(forked, &text);
                }
            }
            (Act::Drop(_), Some(at)) => drop(self.states.swap_remove(at)),
            (Act::Fork(_), Some(at)) => {
                let State { kept, text } = &self.states[at];
                let text = text.clone();
                let forked = self.fork(kept.id());
                self.hold(forked, &text);
            }
            (Act::Rewind(_, length), Some(at)) => self.rewind(at, *length),
            (Act::SaveAndRestore(_), Some(at)) => self.save_and_restore(at),
            (Act::Fail(at), _) => self.bench.faults.arm(*at..at + 1),
            _ => {}
        }
        self.bench.obey();
    }

    fn ask(&mut self, from: Option<usize>, words: &[u32], count: u64, sampled: bool) {
        let state = from.map(|at| &self.states[at]);
        let text = state.map_or(&[][..], |state| &state.text);
        let prompt = [text, words].concat();
        if prompt.len() > LONGEST {
            return;
        }
        let params = if sampled {
            SamplingParams::sampled(0.8).top_k(9).seed(4)
        } else {
            SamplingParams::greedy()
        };
        let expected = usize::try_from(count).unwrap();
        let expected = Law::Everything.decode(&prompt, &params, expected);
        let request = Request::from_ids(prompt.clone())
            .sampling(params)
            .max_new_tokens(count)
            .keep_state(true)
            .continue_from(state.map(|state| state.kept.clone()));
        self.submit(&request, prompt, expected);
    }

    fn submit(&mut self, request: &Request, prompt: Vec<u32>, expected: Vec<u32>) {
        let id = self.bench.submit(request);
        self.asked.push(Asked {
            id,
            prompt,
            expected,
            told: Vec::new(),
        });
    }

    fn fork(&self, from: RequestId) -> impl FnOnce(&mut Bench) -> Result<Kept, KeptError> + use<> {
        move |bench| {
            let client = Arc::clone(&bench.client);
            copy(bench, |reply| CopyCommand::Fork {
                from,
                client,
                reply,
            })
        }
    }

    /// Takes a copy in, which may be refused for lack of room, or because something failed on purpose.
    fn hold(&mut self, make: impl FnOnce(&mut Bench) -> Result<Kept, KeptError>, text: &[u32]) {
        match make(&mut self.bench) {
            Ok(kept) => {
                assert!(text.starts_with(kept.tokens()));
                let text = text.to_vec();
                self.states.push(State { kept, text });
                self.seen.insert("copied");
            }
            Err(error) => {
                let fault = error.to_string().contains("on purpose");
                let none = matches!(error, KeptError::Gone | KeptError::NothingCommitted);
                let full = matches!(error, KeptError::NoRoom { .. });
                assert!(fault || none || full, "{error}");
                self.seen.insert(if full { "no room" } else { "refused" });
            }
        }
    }

    /// As `Kept::rewind`, but for the waiting.
    fn rewind(&mut self, at: usize, length: usize) {
        let tokens = self.states[at].kept.tokens();
        let wanted: Arc<[u32]> = tokens[..1 + length % tokens.len()].into();
        let client = Arc::clone(&self.bench.client);
        let near = copy(&mut self.bench, |reply| CopyCommand::Nearest {
            tokens: Arc::clone(&wanted),
            client,
            reply,
        });
        self.seen.insert(match &near {
            Some(near) if near.tokens().len() == wanted.len() => "rewound at once",
            Some(_) => "replayed from near",
            None => "replayed from nothing",
        });
        let whole = |near: &Kept| near.tokens().len() == wanted.len();
        match near {
            Some(near) if whole(&near) => self.hold(|_| Ok(near), &wanted),
            near => {
                let request = Request::from_ids(wanted.to_vec())
                    .max_new_tokens(0)
                    .keep_state(true)
                    .continue_from(near);
                self.submit(&request, wanted.to_vec(), Vec::new());
            }
        }
    }

    fn save_and_restore(&mut self, at: usize) {
        let State { kept, text } = &self.states[at];
        let (id, tokens, text) = (kept.id(), kept.tokens().into(), text.clone());
        let image = copy(&mut self.bench, |reply| CopyCommand::Image { id, reply });
        let client = Arc::clone(&self.bench.client);
        let restored = image.and_then(|image| {
            copy(&mut self.bench, |reply| CopyCommand::Restore {
                tokens,
                image: Box::new(image),
                client,
                reply,
            })
        });
        self.hold(|_| restored, &text);
    }

    /// One step, and everything after it.
    fn step(&mut self) {
        let before = self.bench.core.composite.snapshot();
        if let Err(error) = self.bench.core.step() {
            let fault = error.to_string();
            assert!(fault.contains("on purpose"), "{fault}");
            self.seen.insert("failed");
            // States may have been taken over or evicted before; nothing else has changed.
            let after = self.bench.core.composite.snapshot();
            assert!(after.residents.len() <= before.residents.len());
        }
        self.bench.faults.arm(0..0);
        self.listen();
        self.bench.obey();
        self.bench.compare();
        assert_eq!(audit(&self.bench.core.composite.snapshot()), Vec::new());
    }

    /// Takes in what requests were told.
    fn listen(&mut self) {
        let mut ended = Vec::new();
        for asked in &mut self.asked {
            for event in self.bench.events(asked.id) {
                match event {
                    Event::Tokens { tokens, .. } => asked.told.extend(tokens),
                    Event::Finished {
                        usage, kept, error, ..
                    } => {
                        assert_eq!(error, None);
                        self.seen.insert(usage.reuse.as_str());
                        ended.push(asked.id);
                        let text = [&asked.prompt[..], &asked.told].concat();
                        self.states.extend(kept.map(|kept| State { kept, text }));
                    }
                }
            }
            assert!(asked.expected.starts_with(&asked.told), "{}", asked.id);
        }
        self.asked.retain(|asked| !ended.contains(&asked.id));
        // Few enough that there is room for others; some are gone.
        self.states.drain(..self.states.len().saturating_sub(2));
    }
}

/// Asks the engine for a copy.
pub(super) fn copy<T>(bench: &mut Bench, command: impl FnOnce(SyncSender<T>) -> CopyCommand) -> T {
    let (reply, answer) = sync_channel(1);
    bench.core.copy(command(reply));
    answer.try_recv().unwrap()
}

/// Runs a script to its end. Tells what was seen.
fn run(
    (form, mode): (Form, Speculation),
    drafts: usize,
    chunk: usize,
    acts: &[Act],
) -> BTreeSet<&'static str> {
    let mut script = Script::new(form, mode, drafts, chunk);
    for act in acts {
        script.act(act);
        script.step();
    }
    for _ in 0..2000 {
        if script.asked.is_empty() {
            break;
        }
        script.step();
    }
    assert!(script.asked.is_empty(), "a request does not end");
    script.states.clear();
    script.bench.obey();
    assert_eq!(script.bench.core.composite.residents().count(), 0);
    script.seen
}

fn form() -> impl Strategy<Value = Form> {
    prop_oneof![
        (2usize..=8).prop_map(Form::State),
        (2usize..=8).prop_map(Form::Update)
    ]
}

fn mode() -> impl Strategy<Value = Speculation> {
    prop_oneof![
        Just(Speculation::Off),
        Just(Speculation::Ngram),
        Just(Speculation::Mtp)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150 * effort()))]

    #[test]
    fn random_scripts_keep_what_their_tokens_leave(
        (form, mode) in (form(), mode()),
        drafts in 1usize..8,
        chunk in 1usize..9,
        acts in prop::collection::vec(act(), 1..60),
    ) {
        let (Form::State(window) | Form::Update(window)) = form else { unreachable!() };
        run((form, mode), drafts.min(window - 1), chunk, &acts);
    }
}

/// The scripts come to everything that there is to come to.
#[test]
fn scripts_see_everything() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let acts = prop::collection::vec(act(), 1500..1501);
    let mut seen = BTreeSet::new();
    for form in [Form::Update(5), Form::State(5), Form::Update(4)] {
        let acts = acts.new_tree(&mut runner).unwrap().current();
        seen.extend(run((form, Speculation::Mtp), 3, 4, &acts));
    }
    let expected = [
        "copied",
        "failed",
        "no room",
        "refused",
        "replayed from near",
        "replayed from nothing",
        "rewound at once",
    ];
    let reuse = [Reuse::Continued, Reuse::Gone, Reuse::NotAsked];
    let reuse = reuse.map(Reuse::as_str);
    for what in expected.iter().chain(&reuse) {
        assert!(seen.contains(what), "{what} was not seen: {seen:?}");
    }
}

/// A state that has seen the whole prompt leaves nothing to run: it is not continued, and the request says so.
#[test]
fn a_state_of_the_whole_prompt_is_not_continued() {
    let bench = Bench::new(Form::Update(4), &EngineOptions::default());
    let client = Arc::clone(&bench.client);
    let (_state, kept) = KeptState::new(client.fresh(), [1, 2, 3], Arc::clone(&client));
    for (prompt, expected) in [
        (&[1, 2, 3, 4][..], (true, Reuse::NotStarted)),
        (&[1, 2, 3], (false, Reuse::NothingLeft)),
        (&[1, 2], (false, Reuse::Diverged)),
    ] {
        let request = Request::from_ids(prompt.to_vec()).continue_from(kept.clone());
        let prepared = request.prepare(&client.limits, 0, client.id).unwrap();
        assert_eq!((prepared.continues.is_some(), prepared.reuse), expected);
    }
}
