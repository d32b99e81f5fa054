//! Random scripts of admit, step, accept, discard, release, transfer, fork, save and restore, compared with token-by-token
//! state after every step.

use super::fixture::*;
use crate::device::{ElementType, HostDevice};
use crate::ids::RequestId;
use crate::kv::KvPool;
use crate::state::RowBytes;
use crate::state::audit::{audit, audit_step};
use crate::txn::{Composite, Keep, Reserved, Snapshot, StateImage, Step, StepError, StepRow};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;

mod bytes;
#[cfg(test)]
mod random;

pub(crate) use bytes::play;

const SLOTS: usize = 3;
const BLOCKS: usize = 9;
/// Images that a script keeps.
const SAVED: usize = 3;

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
    /// The second gets what the first has, or so many tokens less, unless left in a phase.
    Fork(u64, u64, usize, usize),
    /// The image of a request is put by.
    Save(u64),
    /// A request is admitted with an image that was put by, unless left in a phase.
    Restore(u64, usize, usize),
}

/// Every token of a resident, and what its head was given.
#[derive(Clone, Debug, Default, PartialEq)]
struct Known {
    tokens: History,
    head: History,
}

/// The naive model.
#[derive(Default)]
struct Model {
    residents: BTreeMap<RequestId, Known>,
    next_token: u32,
}

struct Script {
    composite: Composite,
    form: Form,
    fixed: bool,
    head: bool,
    model: Model,
    saved: Vec<(StateImage, Known)>,
}

impl Script {
    /// Without `fixed`, a model of attention only.
    fn new(form: Form, fixed: bool, head: bool) -> Self {
        let composite = if fixed {
            composite(form, SLOTS, BLOCKS, head)
        } else {
            let kv = || KvPool::new(&paged_spec(), BLOCKS, &HostDevice).unwrap();
            Composite::new(SLOTS, None, Some(kv()), head.then(kv))
        };
        Self {
            composite,
            form,
            fixed,
            head,
            model: Model::default(),
            saved: Vec::new(),
        }
    }

    fn window(&self) -> usize {
        match self.form {
            _ if !self.fixed => usize::MAX,
            Form::Absent => 0,
            Form::State(window) | Form::Update(window) | Form::Distant(window) => window,
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
            let new = !self.model.residents.contains_key(&id(pick.request));
            let head_tokens = if self.head { pick.head } else { 0 };
            let tokens = pick.tokens + drafts;
            rows.push(StepRow {
                request: id(pick.request),
                tokens,
                drafts,
                head_tokens,
                new,
                branches: Vec::new(),
                head_branches: Vec::new(),
            });
            kept.push(Keep {
                row: 0,
                tokens: NonZeroUsize::new(pick.tokens + pick.accepted.min(drafts)).unwrap(),
                head_tokens: head_tokens / 2,
            });
        }
        (rows, kept)
    }

    fn turn(&mut self, turn: &Turn) {
        let before = self.before();
        let (rows, kept) = self.rows(&turn.picks);
        let tokens: Vec<Vec<u32>> = rows.iter().map(|row| self.model.draw(row.tokens)).collect();
        let heads = rows.iter().map(|row| self.model.draw(row.head_tokens));
        let heads: Vec<Vec<u32>> = heads.collect();
        let form = self.form;
        let published = match self.composite.reserve(&rows) {
            Ok(mut step) => {
                assert_eq!(audit(&step.snapshot()), Vec::new());
                let histories = run(&mut step, form, &tokens);
                for ((history, new), row) in histories.iter().zip(&tokens).zip(&rows) {
                    let old = self.model.residents.get(&row.request);
                    let old = old.map_or(&[][..], |known| &known.tokens);
                    assert_eq!(*history, [old, new].concat(), "cache of {}", row.request);
                }
                run_head(&mut step, &heads);
                leave(step, Some(&kept), turn.leave)
            }
            Err(error) => refused(&error),
        };
        if published {
            for (((row, keep), tokens), head) in rows.iter().zip(&kept).zip(&tokens).zip(&heads) {
                let known = self.model.residents.entry(row.request).or_default();
                known.tokens.extend(&tokens[..keep.tokens.get()]);
                known.head.extend(&head[..keep.head_tokens]);
            }
            let after = self.composite.snapshot();
            assert_eq!(audit_step(&before.0, &after), Vec::new());
        } else {
            self.unchanged(&before);
        }
        self.compare();
        self.between(turn.between);
        self.compare();
    }

    fn between(&mut self, between: Between) {
        match between {
            Between::Nothing => {}
            Between::Release(request) => {
                let resident = self.model.residents.remove(&id(request)).is_some();
                assert_eq!(self.composite.release(id(request)).is_ok(), resident);
            }
            Between::Transfer(from, to) => self.transfer(id(from), id(to)),
            Between::Fork(from, to, less, leave) => self.fork((id(from), id(to)), less, leave),
            Between::Save(request) => {
                let known = self.model.residents.get(&id(request)).cloned();
                let image = self.composite.image(id(request)).ok();
                assert_eq!(image.is_some(), known.is_some());
                self.saved.extend(image.zip(known));
                self.saved.drain(..self.saved.len().saturating_sub(SAVED));
            }
            Between::Restore(to, which, leave) => self.restore(id(to), which, leave),
        }
    }

    fn transfer(&mut self, from: RequestId, to: RequestId) {
        let before = self.before();
        let done = self.composite.transfer(from, to).is_ok();
        let residents = &mut self.model.residents;
        let possible = residents.contains_key(&from) && !residents.contains_key(&to);
        assert_eq!(done, possible);
        if !done {
            return self.unchanged(&before);
        }
        let known = residents.remove(&from).unwrap();
        residents.insert(to, known);
    }

    fn fork(&mut self, (from, to): (RequestId, RequestId), less: usize, phase: usize) {
        let before = self.before();
        let known = self.model.residents.get(&from).cloned();
        let committed = known.as_ref().map_or(0, |known| known.tokens.len());
        let tokens = committed.saturating_sub(less);
        let published = match self.composite.fork(from, to, tokens) {
            Ok(step) => leave(step, None, phase),
            Err(error) => {
                let back = self.fixed && less > 0;
                let wrong = from == to || known.is_none() || tokens == 0 || back;
                let taken = self.model.residents.contains_key(&to);
                assert!(wrong || taken || error.can_wait(), "{error}");
                false
            }
        };
        if !published {
            return self.unchanged(&before);
        }
        let Known {
            mut tokens,
            mut head,
        } = known.unwrap();
        tokens.truncate(committed - less);
        head.truncate(tokens.len());
        self.model.residents.insert(to, Known { tokens, head });
        // A fork takes at most one more block of each cache.
        let used = |snapshot: &Snapshot| {
            let caches = [&snapshot.paged, &snapshot.head];
            caches.map(|paged| paged.as_ref().map_or(0, |paged| paged.free.len()))
        };
        let (before, after) = (used(&before.0), used(&self.composite.snapshot()));
        assert!(before.iter().zip(after).all(|(b, a)| b - a <= 1));
    }

    fn restore(&mut self, to: RequestId, which: usize, phase: usize) {
        let Some((image, known)) = self.saved.get(which) else {
            return;
        };
        let before = self.before();
        let published = match self.composite.restore(to, image) {
            Ok(step) => leave(step, None, phase),
            Err(_) if self.model.residents.contains_key(&to) => false,
            Err(error) => refused(&error),
        };
        if published {
            self.model.residents.insert(to, known.clone());
        } else {
            self.unchanged(&before);
        }
    }

    fn before(&self) -> (Snapshot, BTreeMap<RequestId, StateImage>) {
        (self.composite.snapshot(), images(&self.composite))
    }

    /// Everything visible is as it was.
    fn unchanged(&self, before: &(Snapshot, BTreeMap<RequestId, StateImage>)) {
        assert_eq!(self.composite.snapshot(), before.0);
        assert_eq!(images(&self.composite), before.1);
    }

    /// Everything the composite shows against the model.
    fn compare(&self) {
        assert_eq!(audit(&self.composite.snapshot()), Vec::new());
        let mut residents: Vec<RequestId> = self.composite.residents().collect();
        residents.sort();
        let known = self.model.residents.keys().copied();
        assert_eq!(residents, known.collect::<Vec<_>>());
        for (request, known) in &self.model.residents {
            let image = self.composite.image(*request).unwrap();
            assert_eq!(image.tokens, known.tokens.len());
            assert_eq!(image.cache[0].keys, floats(&known.tokens), "of {request}");
            let head = image
                .head
                .map(|head| (head.tokens, head.cache[0].keys.clone()));
            let expected = || (known.head.len(), floats(&known.head));
            assert_eq!(head, self.head.then(expected), "head of {request}");
            let element = ElementType::F32;
            let rows = image.fixed.iter();
            let rows: Vec<_> = rows
                .map(|bytes| RowBytes {
                    element,
                    bytes: bytes.into(),
                })
                .collect();
            if self.fixed {
                assert_rows(&rows, &known.tokens);
            }
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
}

fn floats(tokens: &[u32]) -> Vec<f32> {
    tokens.iter().map(|token| *token as f32).collect()
}

fn images(composite: &Composite) -> BTreeMap<RequestId, StateImage> {
    let image = |request| (request, composite.image(request).unwrap());
    composite.residents().map(image).collect()
}

/// A step that was not reserved, for lack of room.
fn refused(error: &StepError) -> bool {
    let never = error.to_string().contains("the cache has 9");
    assert!(error.can_wait() || never, "{error}");
    false
}

/// Lets the head write what it is given.
fn run_head(step: &mut Step<'_, Reserved>, heads: &[Vec<u32>]) {
    let rows: Vec<usize> = (0..heads.len()).collect();
    let Some(binding) = step.head_binding(&rows) else {
        return;
    };
    let [layer] = step.head_buffers() else {
        panic!("one layer")
    };
    let keys = layer.key.as_f32_mut().unwrap();
    for (row, tokens) in heads.iter().enumerate() {
        let past = usize::try_from(binding.past[row]).unwrap();
        let table = &binding.block_table[row * binding.max_blocks..];
        for (position, token) in (past..).zip(tokens) {
            let block = usize::try_from(table[position / BLOCK]).unwrap();
            keys[block * BLOCK + position % BLOCK] = *token as f32;
        }
    }
}

/// Walks a step up to a phase and drops it there; the fourth and later ones publish it. Tells whether it was published.
fn leave(step: Step<'_, Reserved>, kept: Option<&[Keep]>, phase: usize) -> bool {
    assert_eq!(audit(&step.snapshot()), Vec::new());
    if phase == 0 {
        return false;
    }
    let step = match kept {
        Some(kept) => step.accept(kept).unwrap(),
        None => step.accept_all(),
    };
    if phase == 1 {
        return false;
    }
    let step = step.validate().unwrap();
    if phase == 2 {
        return false;
    }
    let step = step.prepare().unwrap();
    assert_eq!(audit(&step.snapshot()), Vec::new());
    if phase == 3 {
        return false;
    }
    step.publish();
    true
}
