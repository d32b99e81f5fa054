//! What is tried out: what is not measured is not known, and what was not worth it can become so.

use super::Controller;
use super::choice::{Available, Choice, Decoding, Why};
use super::choose::{Costs, HYSTERESIS, Offer, Pick, goodput};
use super::cost::StepShape;
use super::idle::Turn;

/// What may be explored: a part of all steps, saved up to a few.
const EXPLORED: f64 = 1.0 / 64.0;
const MOST_SAVED: f64 = 12.0;
/// Steps from one that explores to the next, at least.
const APART: usize = 4;
/// Steps with drafts after which one without is measured again: first, and where plain steps of so many requests are not
/// known yet; then twice as many from time to time, up to the last.
const PLAIN_FIRST: usize = 16;
const PLAIN_LAST: usize = 256;
/// Measurements after which a shape is not explored further.
const MEASURED: u32 = 4;

/// Chains that are fastest of which one has a length whose cost is measured again: where it is known from another process,
/// and where it is known from this one. Lengths in turn.
const AGAIN: usize = 6;
const SELDOM: usize = 24;
const LENGTHS: [usize; 8] = [3, 2, 4, 7, 1, 5, 3, 6];

/// How far exploring has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Explored {
    /// Steps that may be spent on it.
    allowance: f64,
    /// Steps since the last one that was.
    since: usize,
    /// Steps with drafts since the last one without.
    since_plain: usize,
    /// After how many of these one is due.
    plain_wait: usize,
    /// Turns taken.
    turns: usize,
    /// Chains since a cost was measured again, and how often one was.
    chains: usize,
    again: usize,
}

impl Default for Explored {
    fn default() -> Self {
        Self {
            allowance: MOST_SAVED,
            since: 0,
            since_plain: 0,
            plain_wait: PLAIN_FIRST,
            turns: 0,
            chains: 0,
            again: 0,
        }
    }
}

impl Explored {
    fn may(&self) -> bool {
        self.allowance >= 1.0 && self.since >= APART
    }

    fn spend(&mut self) {
        self.allowance -= 1.0;
        self.since = 0;
    }
}

/// A step as it is planned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned<'a> {
    pub(super) batch: &'a [Decoding],
    pub(super) plan: &'a [Option<Pick>],
    pub(super) offers: &'a [Vec<Offer>],
    pub(super) costs: &'a Costs,
    pub(super) context: usize,
}

impl Planned<'_> {
    fn shape(&self, tokens: usize) -> StepShape {
        StepShape {
            requests: self.batch.len(),
            tokens,
            context: self.context,
        }
    }
}

impl Controller {
    /// The plan with what is tried out in this step.
    pub(super) fn explored(&mut self, planned: Planned<'_>) -> Vec<Choice> {
        self.explored.allowance = (self.explored.allowance + EXPLORED).min(MOST_SAVED);
        self.explored.since = self.explored.since.saturating_add(1);
        let drafting = planned.plan.iter().any(Option::is_some);
        if !drafting {
            self.explored.since_plain = 0;
        } else if self.plain_is_due(planned) {
            self.explored.since_plain = 0;
            self.explored.plain_wait = (2 * self.explored.plain_wait).min(PLAIN_LAST);
            return vec![Choice::plain(Why::PlainProbe); planned.batch.len()];
        } else {
            self.explored.since_plain += 1;
        }
        let mut choices = self.with_trials(planned);
        if drafting && self.explored.may() {
            self.probe(planned, &mut choices);
        }
        self.measure_again(planned, &mut choices);
        choices
    }

    fn plain_is_due(&self, planned: Planned<'_>) -> bool {
        let known = self.table.knows_plain(planned.batch.len());
        self.explored.since_plain
            >= if known {
                self.explored.plain_wait
            } else {
                PLAIN_FIRST
            }
    }

    fn with_trials(&mut self, planned: Planned<'_>) -> Vec<Choice> {
        let mut choices = Vec::with_capacity(planned.batch.len());
        let tokens: usize = planned.plan.iter().map(|pick| Pick::tokens(*pick)).sum();
        let mut spare = self.limits.tokens.saturating_sub(tokens);
        let requests = planned.batch.iter().zip(planned.offers);
        for ((decoding, offers), pick) in requests.zip(planned.plan) {
            let choice = match pick {
                Some(pick) => {
                    self.known(decoding).idle.drafts();
                    Choice::of(*pick, Why::Fastest)
                }
                None if spare == 0 => Choice::plain(Why::NotWorth),
                None => match unproven(decoding, offers) {
                    Some(pick) => Choice::of(pick, Why::Proof),
                    None => self.trial(decoding, offers),
                },
            };
            spare -= usize::from(matches!(choice.why, Why::Trial | Why::Proof));
            choices.push(choice);
        }
        choices
    }

    /// A request that does not draft, or does for a few rounds to see whether it should.
    fn trial(&mut self, decoding: &Decoding, offers: &[Offer]) -> Choice {
        if offers.is_empty() {
            let why = if decoding.room == 0 {
                Why::NoRoom
            } else {
                Why::NoDrafts
            };
            return Choice::plain(why);
        }
        let turn = self.known(decoding).idle.turn();
        let (Turn::Begin(count) | Turn::Go(count)) = turn else {
            return Choice::plain(Why::NotWorth);
        };
        let chains = || offers.iter().filter(|offer| offer.arm.width == 1);
        let chains_of = chains().count().max(1);
        let Some(offer) = chains().nth(count % chains_of) else {
            return Choice::plain(Why::NotWorth);
        };
        if let Turn::Begin(_) = turn {
            if let Some(undo) = &mut self.undo {
                undo.begun.push((decoding.request, offer.arm.source));
            }
            let own = self.known(decoding).idle;
            self.idle.begun(own);
        }
        Choice::of(
            Pick {
                arm: offer.arm,
                drafts: 1,
            },
            Why::Trial,
        )
    }

    /// Every so many chains one has another length, so that costs of lengths that are seldom chosen do not grow old: a cost
    /// that was once measured too high, perhaps by another process, would keep them from being chosen again.
    fn measure_again(&mut self, planned: Planned<'_>, choices: &mut [Choice]) {
        let chain = |choice: &Choice| choice.why == Why::Fastest && choice.width == 1;
        let Some(own) = choices.iter().position(chain) else {
            return;
        };
        self.explored.chains += 1;
        let length = LENGTHS.get(self.explored.again % LENGTHS.len());
        let pick = choices.get(own).and_then(Choice::pick);
        let offers = planned.offers.get(own);
        let (Some(length), Some(pick), Some(offers)) = (length, pick, offers) else {
            return;
        };
        let offer = offers.iter().find(|offer| offer.arm == pick.arm);
        let drafts = offer.map_or(0, |offer| offer.rates.len()).min(*length);
        let all = choices.iter().map(|choice| Pick::tokens(choice.pick()));
        let tokens = all.sum::<usize>() - pick.drafts + drafts;
        let wait = if self.table.is_from_elsewhere(planned.shape(tokens)) {
            AGAIN
        } else {
            SELDOM
        };
        if self.explored.chains < wait || drafts == 0 || tokens > self.limits.tokens {
            return;
        }
        self.explored.chains = 0;
        self.explored.again = self.explored.again.wrapping_add(1);
        if let Some(choice) = choices.get_mut(own) {
            *choice = Choice::of(Pick { drafts, ..pick }, Why::CostProbe);
        }
    }

    /// Tries something else in the first request that drafts: another number of drafts, or another source or width.
    fn probe(&mut self, planned: Planned<'_>, choices: &mut [Choice]) {
        let drafting = choices.iter().position(|choice| choice.why == Why::Fastest);
        let Some(own) = drafting else {
            return;
        };
        let turn = self.explored.turns;
        self.explored.turns = turn.wrapping_add(1);
        let probe = match turn % 2 {
            0 => self
                .promising(planned, own)
                .map(|pick| (pick, Why::ShapeProbe)),
            _ => another(planned, own, turn / 2).map(|pick| (pick, Why::SourceProbe)),
        };
        let Some(choice) = choices.get(own).copied() else {
            return;
        };
        let (mut tokens, mut rows) = (0, 0);
        for choice in choices.iter() {
            tokens += Pick::tokens(choice.pick());
            rows += choice.width;
        }
        let fits = |pick: &Pick| {
            tokens + Pick::tokens(Some(*pick)) <= self.limits.tokens + Pick::tokens(choice.pick())
                && rows + pick.arm.width <= self.limits.rows + choice.width
        };
        let probe = probe.filter(|(pick, _)| fits(pick));
        if let (Some((pick, why)), Some(choice)) = (probe, choices.get_mut(own)) {
            self.explored.spend();
            *choice = Choice::of(pick, why);
        }
    }

    /// The number of drafts of one request that could be best and whose cost was not measured. What was not measured is
    /// guessed from what was, and a guess that is too high would never be corrected; so it is measured where the least that
    /// it can cost would make it better.
    fn promising(&self, planned: Planned<'_>, own: usize) -> Option<Pick> {
        let pick = (*planned.plan.get(own)?)?;
        let offers = planned.offers.get(own)?;
        let offer = offers.iter().find(|offer| offer.arm == pick.arm)?;
        let least = planned.costs.least();
        let present = goodput(planned.plan, planned.offers, planned.costs);
        let mut could = Vec::new();
        for drafts in 1..=offer.rates.len() {
            let other = Pick { drafts, ..pick };
            let mut plan = planned.plan.to_vec();
            *plan.get_mut(own)? = Some(other);
            let tokens = plan.iter().map(|pick| Pick::tokens(*pick)).sum();
            let rate = goodput(&plan, planned.offers, &least);
            let better = rate > (1.0 + HYSTERESIS) * present;
            if better && !self.table.is_measured(planned.shape(tokens), MEASURED) {
                could.push(other);
            }
        }
        // What is measured bounds what costs more and what costs less, so the middle one says most.
        could.get(could.len() / 2).copied()
    }
}

/// A draft of a source of which nobody knows whether it is any good.
fn unproven(decoding: &Decoding, offers: &[Offer]) -> Option<Pick> {
    let is_unproven = |offer: &&Offer| {
        let of_offer = |source: &&Available| source.source == offer.arm.source;
        let source = decoding.sources.iter().find(of_offer);
        offer.arm.width == 1 && source.is_some_and(|source| source.unproven)
    };
    let arm = offers.iter().find(is_unproven)?.arm;
    Some(Pick { arm, drafts: 1 })
}

/// Another source or width for a request: how good it is now is not known while it is not used.
fn another(planned: Planned<'_>, own: usize, turn: usize) -> Option<Pick> {
    let pick = (*planned.plan.get(own)?)?;
    let offers = planned.offers.get(own)?.iter();
    let others = offers.filter(|offer| offer.arm != pick.arm);
    let offer = others.clone().nth(turn % others.count().max(1))?;
    Some(Pick {
        arm: offer.arm,
        drafts: pick.drafts.min(offer.rates.len()),
    })
}
