//! A hybrid model with a head that is computed token by token in plain code. Its logits depend on everything it keeps, so
//! that lost or foreign state changes tokens; and what it must keep after any tokens is known without running it.

use crate::device::{Device, HostDevice};
use crate::engine::active::Events;
use crate::engine::client::Client;
use crate::engine::core::{self, Core};
use crate::engine::ticket::Turnstile;
use crate::engine::worker::{Command, Submission};
use crate::engine::{EngineOptions, RequestStats};
use crate::exec::{Decoder, Executor, Run, Signature, StepInput};
use crate::grammar::Grammars;
use crate::ids::RequestId;
use crate::kv::KeysValues;
use crate::model::Model;
use crate::model::spec::StateSpec;
use crate::request::{Event, FinishReason, ModelLimits, Request, Reuse};
use crate::sample::{Sampler, SamplingParams, Scratch};
use crate::saved::Layout;
use crate::speculate::EffectiveSpeculation;
use crate::text::tests::byte_level;
use crate::txn::Faults;
use crate::txn::tests::fixture::{
    Form, assert_rows, noise, paged_spec, run_fixed, run_paged, sequential, state_spec,
};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, LazyLock};

/// Few enough tokens that n-grams repeat.
pub(super) const VOCAB: usize = 24;
pub(super) const SLOTS: usize = 3;
pub(super) const BLOCKS: usize = 64;
/// Of requests that choose none.
const SEED: u64 = 5;
/// Hidden rows: the token, a trace of all tokens so far.
const WIDTH: usize = 2;

/// A trace of a whole history.
fn trace(history: &[u32]) -> f32 {
    let mix = |hash: u32, token: &u32| hash.wrapping_mul(31).wrapping_add(token + 1);
    noise(history.iter().fold(7, mix) & 0xFFFF, 500)
}

/// The decoder. Fails before and after its work.
#[derive(Debug)]
struct Graph {
    form: Form,
    law: Law,
    faults: Faults,
}

impl Executor for Graph {
    fn execute(&mut self, run: Run<'_>) -> Result<(), String> {
        let Run {
            inputs,
            paged,
            fixed,
            outputs,
            want_hidden,
            ..
        } = run;
        self.faults
            .call("start decoder")
            .map_err(|e| e.to_string())?;
        (outputs.logits, outputs.hidden) = (Vec::new(), Vec::new());
        for (row, tokens) in rows(inputs).iter().enumerate() {
            let states = run_fixed(fixed, self.form, inputs, row, tokens);
            let history = run_paged(paged, inputs, row, tokens);
            for (t, state) in states.iter().enumerate() {
                let packed = inputs.cumulative[row] + i32::try_from(t).unwrap();
                let seen = &history[..history.len() - tokens.len() + t + 1];
                let wanted = inputs.logits_indices.contains(&packed);
                outputs.logits.extend(
                    wanted
                        .then(|| self.law.logits(seen, state))
                        .into_iter()
                        .flatten(),
                );
                if want_hidden {
                    let hidden = self.law.hidden(seen);
                    outputs.hidden.extend([tokens[t] as f32, hidden]);
                }
            }
        }
        self.faults.call("run decoder").map_err(|e| e.to_string())
    }
}

/// What the next token hangs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Law {
    /// Mostly on the last token; the rest on cache, convolution and recurrence.
    Everything,
    /// On the last token alone, so that the head, which knows it, agrees with the decoder.
    LastToken,
    /// On the last token alone, and the head takes it for the opposite: it is never right.
    Strangers,
    /// As everything, but logits are no numbers after more than so many tokens.
    Until(usize),
    /// On the last token alone, and nothing that the head says is a number.
    Broken,
    /// As until, and nothing that the head says is a number.
    BrokenUntil(usize),
    /// As everything, but hidden rows of texts that begin with token 0 are no numbers.
    Deaf,
}

impl Law {
    fn logits(self, history: &[u32], [conv, delta]: &[Vec<f32>; 2]) -> Vec<f32> {
        if matches!(self, Self::Until(good) | Self::BrokenUntil(good) if history.len() > good) {
            return vec![f32::NAN; VOCAB];
        }
        let last = *history.last().unwrap();
        let kept: Vec<f32> = conv.iter().chain(delta).copied().collect();
        let of_token = |v: u32| {
            let state = kept.iter().enumerate();
            let state: f32 = state.map(|(i, value)| value * noise(v, 200 + i)).sum();
            self.weigh(last, v, 0.5 * noise(v, 90) * trace(history) + 0.1 * state)
        };
        (0..).take(VOCAB).map(of_token).collect()
    }

    fn weigh(self, last: u32, token: u32, rest: f32) -> f32 {
        let everything = matches!(self, Self::Everything | Self::Until(_) | Self::Deaf);
        let rest = if everything { rest } else { 0.0 };
        2.0 * noise(last, token as usize) + rest
    }

    /// What the head takes for the weight.
    fn guess(self, last: u32, token: u32, rest: f32) -> f32 {
        let weight = self.weigh(last, token, rest);
        match self {
            Self::Strangers => -weight,
            Self::Broken | Self::BrokenUntil(_) => f32::NAN,
            Self::Everything | Self::Until(_) | Self::LastToken | Self::Deaf => weight,
        }
    }

    /// What the head is told of a history.
    fn hidden(self, history: &[u32]) -> f32 {
        match (self, history.first()) {
            (Self::Deaf, Some(0)) => f32::NAN,
            _ => trace(history),
        }
    }

    /// The tokens that follow a prompt, without an engine.
    pub(super) fn decode(self, prompt: &[u32], params: &SamplingParams, count: usize) -> Vec<u32> {
        self.decode_allowed(prompt, params, count, |_, _| true)
    }

    /// The same where only some tokens may follow what was generated before them.
    pub(super) fn decode_allowed(
        self,
        prompt: &[u32],
        params: &SamplingParams,
        count: usize,
        allowed: impl Fn(&[u32], u32) -> bool,
    ) -> Vec<u32> {
        let sampler = Sampler::new(params, SEED).unwrap();
        let (mut history, mut scratch) = (prompt.to_vec(), Scratch::default());
        for _ in 0..count {
            let (conv, delta) = sequential(&history);
            let mut logits = self.logits(&history, &[conv, delta]);
            for (token, logit) in (0..).zip(&mut logits) {
                if !allowed(&history[prompt.len()..], token) {
                    *logit = f32::NEG_INFINITY;
                }
            }
            let drawn = sampler.draw(&logits, history.len() as u64, &mut scratch);
            history.push(drawn.unwrap().token);
        }
        history.split_off(prompt.len())
    }
}

/// The head: its cache keeps the tokens and the traces that it was given.
#[derive(Debug)]
struct Head {
    law: Law,
    faults: Faults,
}

impl Executor for Head {
    fn execute(&mut self, run: Run<'_>) -> Result<(), String> {
        let Run {
            inputs,
            paged,
            outputs,
            ..
        } = run;
        self.faults.call("start head").map_err(|e| e.to_string())?;
        (outputs.logits, outputs.hidden) = (Vec::new(), Vec::new());
        for (row, tokens) in rows(inputs).iter().enumerate() {
            let history = run_paged(paged, inputs, row, tokens);
            for (t, token) in tokens.iter().enumerate() {
                let packed = inputs.cumulative[row] + i32::try_from(t).unwrap();
                let hidden = usize::try_from(packed).unwrap() * WIDTH;
                let given = inputs.hidden_states[hidden + 1];
                let position = history.len() - tokens.len() + t;
                keep_value(paged, inputs, row, position, given);
                let guess = |v: u32| self.law.guess(*token, v, 0.5 * noise(v, 90) * given);
                let wanted = inputs.logits_indices.contains(&packed);
                let logits = wanted.then(|| (0..).take(VOCAB).map(guess));
                outputs.logits.extend(logits.into_iter().flatten());
                outputs
                    .hidden
                    .extend([*token as f32, trace(&history[..=position])]);
            }
        }
        self.faults.call("run head").map_err(|e| e.to_string())
    }
}

fn keep_value(
    paged: &mut [crate::model::spec::PagedBuffers],
    inputs: &crate::exec::StepInputs,
    row: usize,
    position: usize,
    given: f32,
) {
    let size = paged_spec().block_size;
    let table = &inputs.block_table[row * inputs.max_blocks..];
    let block = usize::try_from(table[position / size]).unwrap();
    let values = paged[0].value.as_f32_mut().unwrap();
    values[block * size + position % size] = given;
}

/// The tokens of every row.
fn rows(inputs: &crate::exec::StepInputs) -> Vec<Vec<u32>> {
    let bound = |end: &i32| usize::try_from(*end).unwrap();
    let ends: Vec<usize> = inputs.cumulative.iter().map(bound).collect();
    let token = |id: &i64| {
        assert!((0..VOCAB as i64).contains(id), "token {id} does not exist");
        u32::try_from(*id).unwrap()
    };
    let tokens = |pair: &[usize]| {
        let ids = &inputs.input_ids[pair[0]..pair[1]];
        ids.iter().map(token).collect()
    };
    ends.windows(2).map(tokens).collect()
}

fn signature(head: bool) -> Signature {
    let mut inputs = vec![
        StepInput::InputIds,
        StepInput::PositionIds,
        StepInput::CumulativeLengths,
        StepInput::PastLengths,
        StepInput::BlockTable,
        StepInput::LogitsIndices,
    ];
    if head {
        inputs.push(StepInput::HiddenStates);
    } else {
        inputs.extend([
            StepInput::ReadRows,
            StepInput::WriteRows,
            StepInput::CaptureCounts,
        ]);
    }
    Signature {
        inputs: inputs
            .into_iter()
            .map(|input| (input, format!("{input:?}")))
            .collect(),
        logits: "logits".to_owned(),
        vocab: VOCAB,
        hidden: Some("hidden".to_owned()),
        hidden_size: WIDTH,
        others: Vec::new(),
    }
}

/// The model, whose runs ask `faults`.
pub(super) fn model(form: Form, law: Law, faults: &Faults) -> Model {
    sized_model(form, law, faults, (SLOTS, BLOCKS))
}

fn sized_model(form: Form, law: Law, faults: &Faults, (slots, blocks): (usize, usize)) -> Model {
    let state = StateSpec {
        paged: Some(paged_spec()),
        ..state_spec(form)
    };
    let graph = Graph {
        form,
        law,
        faults: faults.clone(),
    };
    let decoder = Decoder::with(Box::new(graph), signature(false), state);
    let paged = StateSpec {
        paged: Some(paged_spec()),
        ..StateSpec::default()
    };
    let head = Head {
        law,
        faults: faults.clone(),
    };
    let head = Decoder::with(Box::new(head), signature(true), paged);
    Model::stand_in(decoder, Some(head), slots, blocks)
}

/// An engine without its thread, and the ends of its requests' event queues.
pub(super) struct Bench {
    pub(super) core: Core,
    pub(super) faults: Faults,
    /// The way in for handles; [`Bench::obey`] listens.
    pub(super) client: Arc<Client>,
    commands: Receiver<Command>,
    requests: Vec<(RequestId, usize, async_channel::Receiver<Event>)>,
}

/// What became of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Told {
    pub(super) tokens: Vec<u32>,
    pub(super) text: String,
    pub(super) reason: Option<FinishReason>,
    pub(super) stats: RequestStats,
}

/// Shared, as they are within an engine: reading what tokens spell takes longer than most tests.
static GRAMMARS: LazyLock<Grammars> = LazyLock::new(Grammars::default);

pub(super) fn limits() -> ModelLimits {
    ModelLimits {
        vocab_size: u32::try_from(VOCAB).unwrap(),
        context_length: 240,
        eos: Vec::new(),
        tokenizer: Some(byte_level()),
        sampling: SamplingParams::greedy(),
        grammars: GRAMMARS.clone(),
    }
}

impl Bench {
    pub(super) fn new(form: Form, options: &EngineOptions) -> Self {
        Self::of(form, Law::Everything, options)
    }

    pub(super) fn of(form: Form, law: Law, options: &EngineOptions) -> Self {
        Self::on(form, law, options, Arc::new(HostDevice), (SLOTS, BLOCKS))
    }

    /// Room for so many requests, and so many blocks in each cache.
    pub(super) fn sized(
        form: Form,
        law: Law,
        options: &EngineOptions,
        extent: (usize, usize),
    ) -> Self {
        Self::on(form, law, options, Arc::new(HostDevice), extent)
    }

    /// Where speculation is what `device` allows. The pools are the host's.
    pub(super) fn on(
        form: Form,
        law: Law,
        options: &EngineOptions,
        device: Arc<dyn Device>,
        extent: (usize, usize),
    ) -> Self {
        let faults = Faults::default();
        let mut model = sized_model(form, law, &faults, extent);
        let host = std::mem::replace(&mut model.device, device);
        let wanted = options.wanted();
        let speculation = EffectiveSpeculation::choose(&wanted, core::offer(&model)).unwrap();
        model.device = host;
        let options = options.clone().audit(true);
        let layout = Layout::of(&model, model.limits.sequence, true);
        let mut core = Core::new(model, &options, speculation, None).unwrap();
        core.composite.set_faults(faults.clone());
        let (commands, receiver) = channel();
        let counters = Arc::clone(&core.counters);
        let client = Client::new(commands, limits(), 1, counters, layout);
        Self {
            core,
            faults,
            client: Arc::new(client),
            commands: receiver,
            requests: Vec::new(),
        }
    }

    pub(super) fn submit(&mut self, request: &Request) -> RequestId {
        self.submit_within(request, &limits())
    }

    /// Submits to a model with these limits.
    pub(super) fn submit_within(&mut self, request: &Request, limits: &ModelLimits) -> RequestId {
        let id = self.client.fresh();
        let prepared = request.prepare(limits, SEED, self.client.id).unwrap();
        let (events, receiver): (Events, _) = async_channel::unbounded();
        self.requests.push((id, prepared.prompt.len(), receiver));
        let ticket = Turnstile::new(1).enter().unwrap();
        self.core.submit(Submission {
            id,
            prepared,
            events,
            ticket,
            client: Arc::clone(&self.client),
        });
        id
    }

    /// Does what dropped handles have asked for.
    pub(super) fn obey(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Release(id) => self.core.release_kept(id),
                other @ (Command::Submit(_)
                | Command::Cancel(_)
                | Command::Copy(_)
                | Command::PoolUsage(_)
                | Command::Shutdown) => panic!("unexpected {other:?}"),
            }
        }
    }

    /// What a request was told since it was last asked.
    pub(super) fn events(&self, id: RequestId) -> Vec<Event> {
        let found = self.requests.iter().find(|(request, ..)| *request == id);
        let events = found.map(|(_, _, events)| std::iter::from_fn(|| events.try_recv().ok()));
        events.into_iter().flatten().collect()
    }

    /// Where a request is told, for whoever looks while a step runs.
    pub(super) fn receiver(&self, id: RequestId) -> async_channel::Receiver<Event> {
        let found = self.requests.iter().find(|(request, ..)| *request == id);
        found.unwrap().2.clone()
    }

    /// Steps until no request is left.
    pub(super) fn drain(&mut self) {
        while !self.core.requests.is_empty() {
            self.core.step().unwrap();
        }
    }

    /// What every request was told so far, in the order of submission; times are left out.
    pub(super) fn told(&self) -> Vec<Told> {
        let told = |(_, _, events): &(_, _, async_channel::Receiver<Event>)| {
            let mut told = Told::default();
            while let Ok(event) = events.try_recv() {
                told.take(event);
            }
            told
        };
        self.requests.iter().map(told).collect()
    }

    /// Events that wait for each request's caller.
    pub(super) fn waiting(&self) -> Vec<usize> {
        self.requests
            .iter()
            .map(|(_, _, events)| events.len())
            .collect()
    }

    /// Everything kept of every resident request and every kept state against what its tokens must leave.
    pub(super) fn compare(&self) {
        let mut residents = Vec::new();
        for active in self.core.requests.iter().filter(|active| active.resident) {
            self.compare_one(active.id, &active.tokens[..active.committed]);
            residents.push(active.id);
            // The head of a state that was taken over may have read another token after it.
            if active.reuse == Reuse::NotAsked && !active.reads_only {
                for KeysValues { keys, .. } in self.core.composite.committed_head(active.id) {
                    let shifted = active.tokens[1..].iter().map(|token| *token as f32);
                    let shifted: Vec<f32> = shifted.take(keys.len()).collect();
                    assert_eq!(keys, shifted, "tokens of the head of {}", active.id);
                }
            }
        }
        for state in self.core.kept.iter() {
            self.compare_one(state.id, &state.tokens);
            residents.push(state.id);
        }
        residents.sort();
        let mut found: Vec<RequestId> = self.core.composite.residents().collect();
        found.sort();
        assert_eq!(found, residents);
    }

    /// What is kept after some tokens.
    fn compare_one(&self, id: RequestId, tokens: &[u32]) {
        let composite = &self.core.composite;
        assert_rows(&composite.committed_rows(id).unwrap(), tokens);
        let cache = composite.committed_cache(id).unwrap();
        let expected: Vec<f32> = tokens.iter().map(|token| *token as f32).collect();
        assert_eq!(cache[0].keys, expected, "cache of {id}");
        for KeysValues { keys, values } in composite.committed_head(id) {
            let hidden: Vec<f32> = (1..=values.len()).map(|n| trace(&tokens[..n])).collect();
            assert_eq!(values, hidden, "hidden rows of the head of {id}");
            let unread = self.core.sources.unread(id).len() / WIDTH;
            // It may be behind the decoder, never before it.
            assert!(keys.len() + unread <= tokens.len(), "the head of {id}");
        }
    }
}

impl Told {
    fn take(&mut self, event: Event) {
        match event {
            Event::Tokens { tokens, text } => {
                self.tokens.extend(tokens);
                self.text.push_str(&text);
            }
            Event::Finished { reason, stats, .. } => {
                let stats = RequestStats {
                    prefill_seconds: 0.0,
                    decode_seconds: 0.0,
                    decode_tokens_per_second: 0.0,
                    speculation: stats.speculation.clone().without_times(),
                    ..*stats
                };
                (self.reason, self.stats) = (Some(reason), stats);
            }
        }
    }
}
