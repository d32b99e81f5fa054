//! How much is drafted, and from where: fixed, or as the controller chooses.

use super::pace::Pace;
use super::sources::Sources;
use crate::engine::accept::Decided;
use crate::engine::active::{Active, Delivered};
use crate::ids::RequestId;
use crate::speculate::control::{
    self, Available, Controller, CostKey, Decoding, Policy, Round, StepLimits, StepShape, Why,
};
use crate::speculate::{Choice, DraftPolicy, EffectiveSpeculation, Source, Speculation};
use std::path::PathBuf;
use std::time::Duration;

/// Chains of a head of which one is for learning, and their lengths in turn.
const EXPLORED_EVERY: usize = 24;
const EXPLORED: [usize; 5] = [3, 2, 4, 3, 6];

/// Where costs are kept between processes.
pub(in crate::engine) type CostStore = Option<(PathBuf, CostKey)>;

/// Decides for every request what its next step drafts.
#[derive(Debug)]
pub(in crate::engine) struct Governor {
    speculation: EffectiveSpeculation,
    controller: Controller,
    store: CostStore,
    /// Chains that a head was asked for because that is fastest.
    chains: usize,
    pace: Pace,
    /// Chains and vetoes before the latest choice.
    before: Option<(usize, usize)>,
}

/// What a published step cost, and what it drafted for the next one.
#[derive(Debug, Default)]
pub(in crate::engine) struct Measured {
    /// Tokens that its rows ran, over all requests; 0 for a step that did more than decode.
    pub(in crate::engine) tokens: usize,
    /// Tokens of the longest request.
    pub(in crate::engine) context: usize,
    /// The step without drafting.
    pub(in crate::engine) step: Duration,
    /// Drafting, by what was asked: drafts made for each of so many requests.
    pub(in crate::engine) drafting: Vec<Drafted>,
}

/// Drafting of one kind in one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::engine) struct Drafted {
    pub(in crate::engine) source: control::Source,
    /// The most that one request got.
    pub(in crate::engine) drafts: usize,
    pub(in crate::engine) requests: usize,
    pub(in crate::engine) time: Duration,
}

impl Governor {
    /// `step` bounds the rows and tokens of one step; `store` is where costs are known from, and kept.
    pub(in crate::engine) fn new(
        speculation: EffectiveSpeculation,
        (rows, tokens): (usize, usize),
        store: CostStore,
    ) -> Self {
        let limits = StepLimits {
            drafts: speculation.max_drafts,
            width: speculation.width,
            rows,
            tokens,
        };
        let policy = match speculation.policy {
            DraftPolicy::Adaptive => Policy::Adaptive,
            DraftPolicy::Fixed => Policy::Fixed(speculation.max_drafts),
        };
        let known = store.as_ref();
        let known = known.and_then(|(folder, key)| control::load(folder, key));
        Self {
            speculation,
            controller: Controller::new(policy, limits, known.unwrap_or_default()),
            store,
            chains: 0,
            pace: Pace::default(),
            before: None,
        }
    }

    /// Decides for every row that drew tokens where drafts for the next step come from, and how many. One of
    /// [`Governor::settle`] and [`Governor::revert`] follows.
    pub(in crate::engine) fn choose(
        &mut self,
        rows: &mut [Decided],
        requests: &[Active],
        sources: &mut Sources,
    ) {
        if self.speculation.max_drafts == 0 {
            return;
        }
        let mut batch = Vec::new();
        let mut drawing = Vec::new();
        for row in rows.iter_mut().filter(|row| row.room > 0) {
            let active = requests.iter().find(|active| active.id == row.request);
            let Some(active) = active else { continue };
            batch.push(Decoding {
                request: row.request,
                context: row.past + row.kept.get() + 1,
                room: row.room,
                sources: self.available(active, row, sources),
            });
            drawing.push(row);
        }
        self.before = Some((self.chains, self.pace.vetoes()));
        let choices = self.controller.choose(&batch);
        for (row, choice) in drawing.into_iter().zip(choices) {
            row.choice = self.translate(choice);
        }
    }

    /// The step was published: what was decided stands.
    pub(super) fn settle(&mut self) {
        if self.before.take().is_some() {
            self.controller.settle();
        }
    }

    /// The step was discarded: its retry decides from where it did.
    pub(super) fn revert(&mut self) {
        if let Some((chains, vetoes)) = self.before.take() {
            self.chains = chains;
            self.pace.set_vetoes(vetoes);
            self.controller.revert();
        }
    }

    /// The sources that the mode allows a request, the preferred first.
    fn available(&self, active: &Active, row: &Decided, sources: &mut Sources) -> Vec<Available> {
        let EffectiveSpeculation {
            mode,
            width,
            max_drafts,
            ..
        } = self.speculation;
        let all = |source, confidence| Available {
            source,
            drafts: row.room.min(max_drafts),
            width,
            confidence,
        };
        if active.drafts.is_some() {
            return vec![all(control::Source::Caller, None)];
        }
        let mut found = Vec::new();
        if sources.has(Source::Head) {
            if mode == Speculation::Auto {
                found.push(all(control::Source::HeadThenLookup, None));
            }
            found.push(all(control::Source::Head, None));
        }
        if sources.has(Source::Lookup) {
            // A longer match is a better guess; what it is worth is learnt.
            let length = sources.survey(active, row);
            let confidence = length.map(|length| 1.0 - 1.0 / (1.0 + length as f32));
            let looked_up = all(control::Source::Lookup, confidence);
            found.extend(confidence.map(|_| looked_up));
        }
        found
    }

    /// What the controller chose, but a chain in the place of trees that have given less than chains. Costs of trees are
    /// foretold from those of chains, as if every row were new; this rests on what came of them.
    fn guard(&mut self, choice: control::Choice) -> control::Choice {
        let tree = choice.width > 1 && choice.why == Why::Fastest;
        if tree && self.pace.trees_are_slower() && !self.pace.is_lifted() {
            return control::Choice { width: 1, ..choice };
        }
        choice
    }

    fn translate(&mut self, choice: control::Choice) -> Choice {
        let choice = self.guard(choice);
        let explored = self.explore(&choice);
        let (source, tail) = match choice.source {
            None | Some(control::Source::Shared) => (None, None),
            Some(control::Source::Caller) => (Some(Source::Caller), None),
            Some(control::Source::Lookup) => (Some(Source::Lookup), None),
            Some(control::Source::Head) => (Some(Source::Head), None),
            Some(control::Source::HeadThenLookup) => (Some(Source::Head), Some(Source::Lookup)),
        };
        Choice {
            arm: choice.source,
            source,
            tail,
            drafts: explored.unwrap_or_else(|| self.reach(&choice)),
            explores: explored.is_some(),
            // What trees give is compared with what chains give, so both must be seen.
            width: explored.map_or(choice.width, |_| 1),
            nodes: self.speculation.tree_nodes,
            why: choice.why,
        }
    }

    /// Every so many chains of a head are as long as it comes to, so that costs of lengths that are seldom chosen do not grow
    /// old: a cost that was once measured too high would keep them from being chosen again.
    fn explore(&mut self, choice: &control::Choice) -> Option<usize> {
        if choice.source != Some(control::Source::Head) || choice.why != Why::Fastest {
            return None;
        }
        self.chains += 1;
        let (turn, rest) = (self.chains / EXPLORED_EVERY, self.chains % EXPLORED_EVERY);
        let length = EXPLORED.get(turn % EXPLORED.len()).filter(|_| rest == 0)?;
        Some((*length).min(self.speculation.max_drafts))
    }

    /// Drafts at most. A head that is worth asking goes on as long as it is sure enough of what it drafts: the number that is
    /// best on average would stop it where it is sure, and let it go on where it is not.
    fn reach(&self, choice: &control::Choice) -> usize {
        let sure = choice.source == Some(control::Source::Head) && choice.width == 1;
        if sure && choice.why == Why::Fastest {
            self.speculation.max_drafts
        } else {
            choice.drafts
        }
    }

    /// Whether a head that has drafted with these confidences should draft once more.
    pub(in crate::engine) fn worth_another(&self, choice: &Choice, confidences: &[f32]) -> bool {
        let Some(arm) = choice.arm else { return false };
        if choice.explores {
            return true;
        }
        let made = self.controller.survival(arm, confidences);
        let next = self.controller.expected(arm, confidences.len());
        self.controller
            .worth_another(arm, made * next, confidences.len())
    }

    /// Learns from a published step.
    pub(in crate::engine) fn learn(&mut self, measured: &Measured, delivered: &[Delivered]) {
        if self.speculation.policy == DraftPolicy::Fixed {
            return;
        }
        if measured.tokens > 0 {
            let drafting: Duration = measured.drafting.iter().map(|drafted| drafted.time).sum();
            self.pace.count(delivered, measured.step + drafting);
            let shape = StepShape {
                requests: delivered.len(),
                tokens: measured.tokens,
                context: measured.context,
            };
            self.controller
                .observe_step(shape, measured.step.as_secs_f64());
            for drafted in &measured.drafting {
                self.controller.observe_drafting(
                    drafted.source,
                    drafted.drafts,
                    drafted.requests,
                    drafted.time.as_secs_f64(),
                );
            }
        }
        for told in delivered {
            let round = Round {
                source: told.arm.filter(|_| told.round.proposed > 0),
                width: told.round.rows,
                evaluated: told.round.evaluated,
                accepted: told.round.accepted,
                confidences: &told.confidences,
            };
            self.controller.observe_row(told.request, round);
        }
    }

    /// No more drafts come from a source.
    pub(in crate::engine) fn disable(&mut self, source: Source) {
        let arms: &[control::Source] = match source {
            Source::Caller => &[control::Source::Caller],
            Source::Lookup => &[control::Source::Lookup],
            Source::Head => &[control::Source::Head, control::Source::HeadThenLookup],
        };
        for arm in arms {
            self.controller.disable(*arm);
        }
    }

    /// Forgets a request.
    pub(in crate::engine) fn forget(&mut self, of: RequestId) {
        self.controller.forget(of);
    }
}

impl Drop for Governor {
    fn drop(&mut self) {
        let adaptive = self.speculation.policy == DraftPolicy::Adaptive;
        if let (Some((folder, key)), true) = (&self.store, adaptive)
            && let Err(error) = control::save(folder, key, self.controller.costs())
        {
            let folder = folder.display();
            tracing::warn!(%error, %folder, "the costs of steps could not be kept");
        }
    }
}
