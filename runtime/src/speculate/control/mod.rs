//! The controller: which request drafts how much from which source, so that tokens come fastest.
//!
//! It learns what steps and drafting cost ([`cost`]) and how often drafts are right ([`acceptance`]), and chooses by
//! expected tokens per second ([`choose`]). Where drafts do not pay it decodes plainly, and tries again now and then. It
//! decides only how fast a text comes, never what it says.

mod acceptance;
mod choice;
mod choose;
mod cost;
mod explore;
mod idle;
mod store;
#[cfg(test)]
mod tests;
mod undo;

use super::DraftPolicy;
use crate::ids::RequestId;
use acceptance::Acceptance;
pub(crate) use acceptance::Arm;
pub(crate) use choice::{Available, Choice, Decoding, Round, Source, Why};
pub(crate) use choose::StepLimits;
use choose::{Costs, Offer, Pick, goodput};
pub(crate) use cost::{CostTable, StepShape};
use explore::{Explored, Planned};
use idle::{Idle, Outcome};
use std::collections::{BTreeSet, HashMap};
pub(crate) use store::{CostKey, load, save};
use undo::Undo;

/// Tokens, or drafts, over which the cost of one more is taken.
const SLOPE: usize = 3;

/// What is known of one request, beside how often its drafts were right.
#[derive(Clone, Debug, Default)]
struct Known {
    pick: Option<Pick>,
    idle: Idle,
}

/// Chooses and learns. There is no clock and no chance in it: the same calls give the same choices.
#[derive(Debug)]
pub(crate) struct Controller {
    policy: DraftPolicy,
    limits: StepLimits,
    table: CostTable,
    acceptance: Acceptance,
    requests: HashMap<RequestId, Known>,
    /// What a new request starts with: since when nobody has tried to draft.
    idle: Idle,
    disabled: BTreeSet<Source>,
    explored: Explored,
    present: Option<Present>,
    undo: Option<Undo>,
}

/// The plan of the latest step.
#[derive(Debug)]
struct Present {
    goodput: f64,
    requests: usize,
    costs: Costs,
}

impl Controller {
    /// With the costs that are known from before.
    pub(crate) fn new(policy: DraftPolicy, limits: StepLimits, table: CostTable) -> Self {
        Self {
            policy,
            limits,
            table,
            acceptance: Acceptance::default(),
            requests: HashMap::new(),
            idle: Idle::default(),
            disabled: BTreeSet::new(),
            explored: Explored::default(),
            present: None,
            undo: None,
        }
    }

    /// What each request of a step does, in their order. [`Controller::settle`] or [`Controller::revert`] follows.
    pub(crate) fn choose(&mut self, batch: &[Decoding]) -> Vec<Choice> {
        match self.policy {
            DraftPolicy::Fixed => batch.iter().map(|decoding| self.fixed(decoding)).collect(),
            DraftPolicy::Adaptive => {
                self.remember();
                self.adaptive(batch)
            }
        }
    }

    /// Learns from a step that only decoded, run as it was chosen.
    pub(crate) fn observe_step(&mut self, shape: StepShape, seconds: f64) {
        self.table.observe_step(shape, seconds);
    }

    /// Learns from drafting up to `drafts` tokens for each of `requests` requests at once.
    pub(crate) fn observe_drafting(
        &mut self,
        source: Source,
        drafts: usize,
        requests: usize,
        seconds: f64,
    ) {
        self.table
            .observe_drafting(source, drafts, requests, seconds);
    }

    /// Learns from what was accepted of a request's drafts, that there were none, or that it was to decode without.
    pub(crate) fn observe_row(&mut self, request: RequestId, round: Round<'_>) {
        self.settle();
        if let Some(arm) = round.arm {
            self.acceptance.asked(request, arm, round.answered);
        }
        if let Some(arm) = round.arm.filter(|_| round.answered) {
            let seen = (round.evaluated, round.accepted);
            self.acceptance
                .observe(request, arm, seen, round.confidences);
        }
        let outcome = match round.arm {
            None => Outcome::Plain,
            Some(_) if !round.answered => Outcome::Nothing,
            Some(_) => Outcome::Accepted(round.accepted),
        };
        if let Some(known) = self.requests.get_mut(&request) {
            known.idle.observe(outcome);
        }
        self.idle.observe(outcome);
    }

    /// Forgets a request that is over.
    pub(crate) fn forget(&mut self, request: RequestId) {
        self.requests.remove(&request);
        self.acceptance.forget(request);
    }

    /// Takes no more drafts from a source.
    pub(crate) fn disable(&mut self, source: Source) {
        self.disabled.insert(source);
    }

    /// What was learnt of costs.
    pub(crate) fn costs(&self) -> &CostTable {
        &self.table
    }

    /// Chance that drafts of these confidences are all right.
    pub(crate) fn survival(&self, source: Source, confidences: &[f32]) -> f32 {
        let chance = |confidence: &f32| {
            self.acceptance
                .calibrated(source, *confidence, f64::from(confidence.clamp(0.0, 1.0)))
        };
        narrow(confidences.iter().map(chance).product())
    }

    /// Chance that a draft is right that follows `before` right ones, over all requests.
    pub(crate) fn expected(&self, source: Source, before: usize) -> f32 {
        let arm = Arm { source, width: 1 };
        narrow(self.acceptance.overall(arm, before))
    }

    /// Whether one more draft is worth its pass of the source and its place in the step, when `depth` were made and the
    /// next is right, with all before it, with the chance `survival`.
    pub(crate) fn worth_another(&self, source: Source, survival: f32, depth: usize) -> bool {
        let Some(present) = self
            .present
            .as_ref()
            .filter(|_| self.policy == DraftPolicy::Adaptive)
        else {
            return true;
        };
        let requests = present.requests.max(1);
        let tokens = requests * (1 + depth);
        // What one more costs is the slope of the costs over a few: differences of neighbours are mostly noise.
        let slope =
            |cost: &dyn Fn(usize) -> f64, at: usize| (cost(at + SLOPE) - cost(at)) / SLOPE as f64;
        let verified = slope(&|tokens| present.costs.step.at(tokens), tokens);
        let drafting = |drafts| present.costs.drafting(source, drafts, requests);
        let drafted = slope(&drafting, depth) / requests as f64;
        f64::from(survival) > present.goodput * (verified + drafted)
    }

    fn fixed(&self, decoding: &Decoding) -> Choice {
        if decoding.room == 0 {
            return Choice::plain(Why::NoRoom);
        }
        if self.limits.drafts == 0 {
            return Choice::plain(Why::Fixed);
        }
        let source = self.usable(decoding).next();
        source.map_or(Choice::plain(Why::NoDrafts), |source| Choice {
            source: Some(source.source),
            drafts: source.drafts.min(decoding.room).min(self.limits.drafts),
            width: source.width.clamp(1, self.limits.width.max(1)),
            why: Why::Fixed,
        })
    }

    fn adaptive(&mut self, batch: &[Decoding]) -> Vec<Choice> {
        let context = batch
            .iter()
            .map(|decoding| decoding.context)
            .max()
            .unwrap_or(0);
        let Some(costs) = Costs::of(&self.table, batch.len(), context) else {
            return vec![Choice::plain(Why::FirstSteps); batch.len()];
        };
        let offers: Vec<_> = batch.iter().map(|decoding| self.offers(decoding)).collect();
        let before: Vec<_> = batch
            .iter()
            .map(|decoding| self.known(decoding).pick)
            .collect();
        let plan = choose::choose(&offers, &costs, self.limits, &before);
        for (decoding, (pick, before)) in batch.iter().zip(plan.iter().zip(&before)) {
            // A plan that had no room for what was chosen before does not take it back.
            let cut = pick.is_none_or(|pick| {
                before.is_some_and(|b| b.arm == pick.arm && b.drafts > pick.drafts)
            });
            let tight = decoding.room < self.limits.drafts;
            self.known(decoding).pick = if cut && tight { *before } else { *pick };
        }
        let choices = self.explored(Planned {
            batch,
            plan: &plan,
            offers: &offers,
            costs: &costs,
            context,
        });
        self.present = Some(Present {
            goodput: goodput(&plan, &offers, &costs),
            requests: batch.len(),
            costs,
        });
        choices
    }

    /// What a request could do, sources in their order.
    fn offers(&self, decoding: &Decoding) -> Vec<Offer> {
        let of_source = |available: &Available| {
            let drafts = available.drafts.min(decoding.room).min(self.limits.drafts);
            let widest = available.width.clamp(1, self.limits.width.max(1));
            // A few widths: each has to be learnt by itself.
            let widths =
                (1..=widest).filter(move |width| width.is_power_of_two() || *width == widest);
            let (source, confidence) = (available.source, available.confidence);
            widths.map(move |width| {
                let arm = Arm { source, width };
                let rates = self
                    .acceptance
                    .rates(decoding.request, arm, drafts, confidence);
                let answers = self.acceptance.answers(decoding.request, arm);
                Offer {
                    arm,
                    rates,
                    answers,
                }
            })
        };
        let offers = self.usable(decoding).copied().collect::<Vec<_>>();
        let offers = offers.iter().flat_map(of_source);
        offers.filter(|offer| !offer.rates.is_empty()).collect()
    }

    fn usable<'a>(&self, decoding: &'a Decoding) -> impl Iterator<Item = &'a Available> {
        let sources = decoding.sources.iter().filter(|source| source.drafts > 0);
        sources.filter(|source| !self.disabled.contains(&source.source))
    }

    fn known(&mut self, decoding: &Decoding) -> &mut Known {
        let idle = self.idle;
        let known = self.requests.entry(decoding.request);
        known.or_insert_with(|| Known { pick: None, idle })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a chance needs no more precision"
)]
fn narrow(chance: f64) -> f32 {
    chance as f32
}
