//! Random scripts of admit, step, accept, discard and release, compared with token-by-token state after every step.

use super::fixture::*;
use crate::ids::RequestId;
use crate::state::audit::{audit, audit_step};
use crate::txn::{Composite, Keep, Reserved, Step, StepRow};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;

const SLOTS: usize = 3;
const BLOCKS: usize = 9;

/// One row as drawn; numbers are made to fit what is possible.
#[derive(Clone, Copy, Debug)]
struct Pick {
    request: u64,
    tokens: usize,
    drafts: usize,
    accepted: usize,
    head: usize,
}

#[derive(Clone, Debug)]
struct Turn {
    picks: Vec<Pick>,
    /// The phase the step is left in; 4 and more publishes.
    leave: usize,
    between: Between,
}

/// What happens between steps.
#[derive(Clone, Copy, Debug)]
enum Between {
    Nothing,
    Release(u64),
    /// The state of the first goes to the second.
    Transfer(u64, u64),
}

fn pick() -> impl Strategy<Value = Pick> {
    (0u64..5, 1usize..7, 0usize..8, 0usize..8, 0usize..6).prop_map(
        |(request, tokens, drafts, accepted, head)| Pick {
            request,
            tokens,
            drafts,
            accepted,
            head,
        },
    )
}

fn turn() -> impl Strategy<Value = Turn> {
    let between = prop_oneof![
        6 => Just(Between::Nothing),
        2 => (0u64..5).prop_map(Between::Release),
        2 => (0u64..5, 0u64..5).prop_map(|(from, to)| Between::Transfer(from, to)),
    ];
    (prop::collection::vec(pick(), 1..5), 0usize..12, between).prop_map(
        |(picks, leave, between)| Turn {
            picks,
            leave,
            between,
        },
    )
}

/// The naive model: every token of every resident, and how many positions its head has.
#[derive(Default)]
struct Model {
    tokens: BTreeMap<RequestId, History>,
    head: BTreeMap<RequestId, usize>,
    next_token: u32,
}

struct Script {
    composite: Composite,
    form: Form,
    head: bool,
    model: Model,
}

impl Script {
    fn new(form: Form, head: bool) -> Self {
        let composite = composite(form, SLOTS, BLOCKS, head);
        Self {
            composite,
            form,
            head,
            model: Model::default(),
        }
    }

    fn window(&self) -> usize {
        match self.form {
            Form::Absent => 0,
            Form::State(window) | Form::Update(window) => window,
        }
    }

    /// The rows of a turn and what each of them will keep.
    fn rows(&self, picks: &[Pick]) -> (Vec<StepRow>, Vec<Keep>) {
        let (mut rows, mut kept) = (Vec::new(), Vec::new());
        let mut seen = Vec::new();
        for pick in picks {
            if seen.contains(&pick.request) {
                continue;
            }
            seen.push(pick.request);
            let drafts = pick.drafts.min(self.window().saturating_sub(pick.tokens));
            let new = !self.model.tokens.contains_key(&id(pick.request));
            let head_tokens = if self.head { pick.head } else { 0 };
            let tokens = pick.tokens + drafts;
            rows.push(StepRow {
                request: id(pick.request),
                tokens,
                drafts,
                head_tokens,
                new,
            });
            kept.push(Keep {
                tokens: NonZeroUsize::new(pick.tokens + pick.accepted.min(drafts)).unwrap(),
                head_tokens: head_tokens / 2,
            });
        }
        (rows, kept)
    }

    fn turn(&mut self, turn: &Turn) {
        let before = self.composite.snapshot();
        let bytes = bits(&self.composite);
        let (rows, kept) = self.rows(&turn.picks);
        let tokens: Vec<Vec<u32>> = rows.iter().map(|row| self.model.draw(row.tokens)).collect();
        let form = self.form;
        let published = match self.composite.reserve(&rows) {
            Ok(step) => walk(step, form, &tokens, &kept, turn.leave, &self.model),
            Err(error) => {
                assert!(
                    error.can_wait() || error.to_string().contains("the cache has 9"),
                    "{error}"
                );
                false
            }
        };
        let after = self.composite.snapshot();
        if published {
            for ((row, keep), tokens) in rows.iter().zip(&kept).zip(&tokens) {
                self.model
                    .keep(row.request, &tokens[..keep.tokens.get()], keep.head_tokens);
            }
            assert_eq!(audit_step(&before, &after), Vec::new());
        } else {
            assert_eq!(after, before);
            assert_eq!(bits(&self.composite), bytes);
        }
        self.compare();
        self.between(turn.between);
        self.compare();
    }

    fn between(&mut self, between: Between) {
        match between {
            Between::Nothing => {}
            Between::Release(request) => {
                let resident = self.model.tokens.remove(&id(request)).is_some();
                self.model.head.remove(&id(request));
                assert_eq!(self.composite.release(id(request)).is_ok(), resident);
            }
            Between::Transfer(from, to) => self.transfer(id(from), id(to)),
        }
    }

    fn transfer(&mut self, from: RequestId, to: RequestId) {
        let before = self.composite.snapshot();
        let done = self.composite.transfer(from, to).is_ok();
        let model = &mut self.model;
        let possible = model.tokens.contains_key(&from) && !model.tokens.contains_key(&to);
        assert_eq!(done, possible);
        if !done {
            return assert_eq!(self.composite.snapshot(), before);
        }
        let tokens = model.tokens.remove(&from).unwrap();
        model.tokens.insert(to, tokens);
        let head = model.head.remove(&from).unwrap();
        model.head.insert(to, head);
    }

    /// Everything the composite shows against the model.
    fn compare(&self) {
        assert_eq!(audit(&self.composite.snapshot()), Vec::new());
        let mut residents: Vec<RequestId> = self.composite.residents().collect();
        residents.sort();
        assert_eq!(
            residents,
            self.model.tokens.keys().copied().collect::<Vec<_>>()
        );
        for (request, tokens) in &self.model.tokens {
            assert_eq!(self.composite.tokens(*request), Some(tokens.len()));
            let head = self.head.then(|| self.model.head[request]);
            assert_eq!(self.composite.head_tokens(*request), head);
            let rows = self.composite.committed_rows(*request).unwrap();
            assert_rows(&rows, tokens);
        }
    }
}

impl Model {
    /// Tokens nobody has used.
    fn draw(&mut self, count: usize) -> Vec<u32> {
        let start = self.next_token;
        self.next_token += u32::try_from(count).unwrap();
        (start..self.next_token).collect()
    }

    fn keep(&mut self, request: RequestId, tokens: &[u32], head_tokens: usize) {
        self.tokens
            .entry(request)
            .or_default()
            .extend_from_slice(tokens);
        *self.head.entry(request).or_default() += head_tokens;
    }
}

/// Walks a reserved step up to the phase `leave`. Tells whether it was published.
fn walk(
    mut step: Step<'_, Reserved>,
    form: Form,
    tokens: &[Vec<u32>],
    kept: &[Keep],
    leave: usize,
    model: &Model,
) -> bool {
    assert_eq!(audit(&step.snapshot()), Vec::new());
    let histories = run(&mut step, form, tokens);
    for ((history, new), request) in histories.iter().zip(tokens).zip(step.requests()) {
        let old = model.tokens.get(&request).cloned().unwrap_or_default();
        assert_eq!(*history, [old, new.clone()].concat(), "cache of {request}");
    }
    if leave == 0 {
        return false;
    }
    let step = step.accept(kept).unwrap();
    if leave == 1 {
        return false;
    }
    let step = step.validate().unwrap();
    if leave == 2 {
        return false;
    }
    let step = step.prepare().unwrap();
    assert_eq!(audit(&step.snapshot()), Vec::new());
    if leave == 3 {
        return false;
    }
    step.publish();
    true
}

fn form() -> impl Strategy<Value = Form> {
    prop_oneof![
        Just(Form::Absent),
        (1usize..=8).prop_map(Form::State),
        (1usize..=8).prop_map(Form::Update),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_scripts_agree_with_token_by_token_state(
        form in form(),
        head: bool,
        turns in prop::collection::vec(turn(), 1..40),
    ) {
        let mut script = Script::new(form, head);
        for turn in &turns {
            script.turn(turn);
        }
    }
}
