//! How much is drafted, and from where: fixed, or as the controller chooses.

use super::pace::Pace;
use super::sources::Sources;
use crate::engine::accept::Decided;
use crate::engine::active::{Active, Delivered};
use crate::ids::RequestId;
use crate::speculate::control::{
    self, Available, Controller, CostKey, Decoding, Round, StepLimits, StepShape, Why,
};
use crate::speculate::{Choice, DraftPolicy, EffectiveSpeculation, Source, Speculation};
use std::path::PathBuf;
use std::time::Duration;

/// Where costs are kept between processes.
pub(in crate::engine) type CostStore = Option<(PathBuf, CostKey)>;

/// Decides for every request what its next step drafts.
#[derive(Debug)]
pub(in crate::engine) struct Governor {
    speculation: EffectiveSpeculation,
    controller: Controller,
    store: CostStore,
    pace: Pace,
    /// Whether trees are on offer: those that gave less than chains are only now and then.
    trees: bool,
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
        let policy = speculation.policy;
        let known = store.as_ref();
        let known = known.and_then(|(folder, key)| control::load(folder, key));
        Self {
            speculation,
            controller: Controller::new(policy, limits, known.unwrap_or_default()),
            store,
            pace: Pace::default(),
            trees: true,
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
        let choices = self.controller.choose(&batch);
        for (row, choice) in drawing.into_iter().zip(choices) {
            row.choice = self.translate(choice);
        }
    }

    /// The step was published: what was decided stands.
    pub(super) fn settle(&mut self) {
        self.controller.settle();
    }

    /// The step was discarded: its retry decides from where it did.
    pub(super) fn revert(&mut self) {
        self.controller.revert();
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
            width: if self.trees { width } else { 1 },
            confidence,
            unproven: false,
        };
        if active.drafts.is_some() {
            return vec![all(control::Source::Caller, None)];
        }
        let mut found = Vec::new();
        if sources.has(Source::Head) {
            let unproven = sources.head_is_unproven();
            let head = |source| Available {
                unproven,
                ..all(source, None)
            };
            if mode == Speculation::Auto {
                let tailed = head(control::Source::HeadThenLookup);
                found.push(Available { width: 1, ..tailed });
            }
            found.push(head(control::Source::Head));
        }
        if sources.has(Source::Lookup) {
            let length = sources.survey(active, row);
            let looked_up = |length| all(control::Source::Lookup, Some(sureness(length)));
            found.extend(length.map(looked_up));
        }
        found
    }

    fn translate(&self, choice: control::Choice) -> Choice {
        let (source, tail) = match choice.source {
            None => (None, None),
            Some(control::Source::Caller) => (Some(Source::Caller), None),
            Some(control::Source::Lookup) => (Some(Source::Lookup), None),
            Some(control::Source::Head) => (Some(Source::Head), None),
            Some(control::Source::HeadThenLookup) => (Some(Source::Head), Some(Source::Lookup)),
        };
        let drafts = self.reach(&choice);
        // A head that is never asked whether one more is worth it would leave nothing to what comes after it.
        let shared = choice.why == Why::Fixed && tail.is_some();
        Choice {
            arm: choice.arm(),
            source,
            tail,
            drafts,
            own: if shared { drafts.div_ceil(2) } else { drafts },
            explores: matches!(choice.why, Why::ShapeProbe | Why::CostProbe),
            width: choice.width,
            nodes: self.speculation.tree_nodes,
            why: choice.why,
        }
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

    /// Whether trees are run at all.
    pub(super) fn runs_trees(&self) -> bool {
        self.speculation.width > 1
    }

    /// Whether a head that has drafted with these confidences should draft once more.
    pub(in crate::engine) fn worth_another(&self, choice: &Choice, confidences: &[f32]) -> bool {
        let Some(source) = choice.arm.map(|arm| arm.source) else {
            return false;
        };
        if choice.explores {
            return true;
        }
        let made = self.controller.survival(source, confidences);
        let next = self.controller.expected(source, confidences.len());
        self.controller
            .worth_another(source, made * next, confidences.len())
    }

    /// Learns from a published step.
    pub(in crate::engine) fn learn(&mut self, measured: &Measured, delivered: &[Delivered]) {
        if self.speculation.policy == DraftPolicy::Fixed {
            return;
        }
        if measured.tokens > 0 {
            let drafting: Duration = measured.drafting.iter().map(|drafted| drafted.time).sum();
            self.pace.count(delivered, measured.step + drafting);
            self.trees = self.pace.offers_trees();
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
            // Drafts that the step had no room for say nothing of their source.
            let crowded = told.made > 0 && told.round.proposed == 0;
            let round = Round {
                arm: told.arm.filter(|_| !crowded),
                answered: told.made > 0,
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

/// How sure a lookup is of its first draft by the length of its match: a longer one is a better guess. What it is worth is
/// learnt.
pub(super) fn sureness(length: usize) -> f32 {
    1.0 - 1.0 / (1.0 + length as f32)
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
