//! Which request drafts how much in the next step. Pure: the same inputs give the same choice.

use super::Source;
use super::acceptance::Arm;
use super::cost::{CostTable, Line};
use std::collections::BTreeMap;

/// How much better another plan must be than the present one to replace it, as a part of what it gives.
pub(super) const HYSTERESIS: f64 = 0.03;

/// Bounds of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StepLimits {
    /// Drafts of one row.
    pub(crate) drafts: usize,
    /// Rows of one request.
    pub(crate) width: usize,
    /// Rows of the step.
    pub(crate) rows: usize,
    /// Tokens of the step, known ones and drafts.
    pub(crate) tokens: usize,
}

/// What a request could do: drafts from one source in so many rows, and the chances that its drafts are right, each given
/// the ones before. There are as many chances as drafts it may take.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Offer {
    pub(super) arm: Arm,
    pub(super) rates: Vec<f64>,
    /// Chance that there are drafts when they are asked for.
    pub(super) answers: f64,
}

/// What a request does; no drafts: plain decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pick {
    pub(super) arm: Arm,
    pub(super) drafts: usize,
}

impl Pick {
    /// Tokens that its rows run.
    pub(super) fn tokens(pick: Option<Pick>) -> usize {
        pick.map_or(1, |pick| pick.arm.width * (pick.drafts + 1))
    }

    fn rows(pick: Option<Pick>) -> usize {
        pick.map_or(1, |pick| pick.arm.width)
    }
}

/// Costs of the steps that a batch can take.
#[derive(Clone, Debug)]
pub(super) struct Costs {
    pub(super) step: Line,
    /// By source, for 1, 2, .. requests that draft from it. A source whose cost is not known yet is taken to cost nothing,
    /// so that it is tried.
    drafting: BTreeMap<Source, Vec<Option<Line>>>,
}

impl Costs {
    /// `None` while no step was measured.
    pub(super) fn of(table: &CostTable, requests: usize, context: usize) -> Option<Self> {
        let lines = |source| {
            (1..=requests)
                .map(|count| table.drafting(source, count))
                .collect()
        };
        Some(Self {
            step: table.steps(requests, context)?,
            drafting: Source::ALL
                .into_iter()
                .map(|source| (source, lines(source)))
                .collect(),
        })
    }

    /// The least that these costs can be; see [`Line::least`].
    pub(super) fn least(&self) -> Self {
        Self {
            step: self.step.least(),
            drafting: self.drafting.clone(),
        }
    }

    /// Seconds of drafting up to `drafts` tokens for each of `requests` requests.
    pub(super) fn drafting(&self, source: Source, drafts: usize, requests: usize) -> f64 {
        let lines = self.drafting.get(&source);
        let line = lines.and_then(|lines| lines.get(requests.checked_sub(1)?)?.as_ref());
        line.map_or(0.0, |line| line.at(drafts))
    }

    /// Seconds of a plan whose rows run so many tokens on average.
    fn seconds(&self, plan: &[Option<Pick>], tokens: f64) -> f64 {
        let mut drafting: BTreeMap<Source, (usize, usize)> = BTreeMap::new();
        for pick in plan.iter().flatten() {
            let (most, requests) = drafting.entry(pick.arm.source).or_default();
            *most = (*most).max(pick.drafts);
            *requests += 1;
        }
        let of_source = drafting.into_iter();
        let drafting = of_source.map(|(source, (most, count))| self.drafting(source, most, count));
        self.step.at_mean(tokens) + drafting.sum::<f64>()
    }
}

/// Tokens per second that a plan is expected to give.
pub(super) fn goodput(plan: &[Option<Pick>], options: &[Vec<Offer>], costs: &Costs) -> f64 {
    let (mut given, mut run) = (0.0, 0.0);
    for (pick, options) in plan.iter().zip(options) {
        let option = pick.and_then(|pick| options.iter().find(|option| option.arm == pick.arm));
        let drafts = pick.map_or(0, |pick| pick.drafts);
        given += 1.0 + option.map_or(0.0, |option| option.accepted(drafts));
        run += option.map_or(Pick::tokens(*pick) as f64, |option| option.tokens(drafts));
    }
    given / costs.seconds(plan, run)
}

impl Offer {
    /// Drafts that are expected to be accepted of so many in each row.
    fn accepted(&self, drafts: usize) -> f64 {
        self.answers * accepted(&self.rates, drafts)
    }

    /// Tokens that its rows are expected to run.
    fn tokens(&self, drafts: usize) -> f64 {
        let pick = Pick {
            arm: self.arm,
            drafts,
        };
        1.0 + self.answers * (Pick::tokens(Some(pick)) - 1) as f64
    }
}

/// Drafts that are expected to be accepted.
fn accepted(rates: &[f64], drafts: usize) -> f64 {
    let mut survival = 1.0;
    let chances = rates.iter().take(drafts);
    chances
        .map(|rate| {
            survival *= rate;
            survival
        })
        .sum()
}

/// The plan with the most tokens per second, or the one before where it is nearly as good.
///
/// Every request first takes its best source and width, as if it alone drafted; a chain where there is no room for its rows. Then drafts are admitted one by one, the
/// likeliest for its tokens first, and of all the plans on the way the best is taken: costs have steps, so the best plan
/// can lie beyond a worse one.
pub(super) fn choose(
    options: &[Vec<Offer>],
    costs: &Costs,
    limits: StepLimits,
    before: &[Option<Pick>],
) -> Vec<Option<Pick>> {
    let alone = |own: usize, width: usize| best_alone((own, width), options, costs, limits);
    let mut chosen: Vec<_> = (0..options.len())
        .map(|own| alone(own, limits.width.max(1)))
        .collect();
    let mut best = admit(&chosen, options, costs, limits);
    // Rows that others took leave room for a chain.
    let wide = |option: &Option<&Offer>| option.is_some_and(|option| option.arm.width > 1);
    let crowded = |own: &usize| chosen.get(*own).is_some_and(wide) && best.get(*own) == Some(&None);
    let crowded: Vec<usize> = (0..options.len()).filter(crowded).collect();
    for own in &crowded {
        if let Some(option) = chosen.get_mut(*own) {
            *option = alone(*own, 1);
        }
    }
    if !crowded.is_empty() {
        let other = admit(&chosen, options, costs, limits);
        if goodput(&other, options, costs) > goodput(&best, options, costs) {
            best = other;
        }
    }
    let mut plan = possible(before, options, limits);
    let mut rate = goodput(&plan, options, costs);
    let most = goodput(&best, options, costs);
    if most > (1.0 + HYSTERESIS) * rate {
        return best;
    }
    // Among many requests, what one does makes little difference to all: each changes by itself, for its share.
    let share = 1.0 + HYSTERESIS / options.len().max(1) as f64;
    for own in 0..plan.len() {
        let mut other = plan.clone();
        if let (Some(pick), Some(better)) = (other.get_mut(own), best.get(own)) {
            *pick = *better;
        }
        let changed = goodput(&other, options, costs);
        if changed > share * rate && fit(&other, limits) {
            (plan, rate) = (other, changed);
        }
    }
    plan
}

fn fit(plan: &[Option<Pick>], limits: StepLimits) -> bool {
    let sum = |of: fn(Option<Pick>) -> usize| plan.iter().map(|pick| of(*pick)).sum::<usize>();
    sum(Pick::tokens) <= limits.tokens && sum(Pick::rows) <= limits.rows
}

/// The best option of one request in so many rows at most, while the others do not draft.
fn best_alone<'a>(
    (own, width): (usize, usize),
    options: &'a [Vec<Offer>],
    costs: &Costs,
    limits: StepLimits,
) -> Option<&'a Offer> {
    let others = options.len() - 1;
    let rate = |option: &Offer| {
        let fits = |drafts: &usize| {
            let rows = option.arm.width;
            others + rows * (drafts + 1) <= limits.tokens && others + rows <= limits.rows
        };
        let of = |drafts| {
            let seconds = costs.step.at_mean(others as f64 + option.tokens(drafts))
                + costs.drafting(option.arm.source, drafts, 1);
            (options.len() as f64 + option.accepted(drafts)) / seconds
        };
        let drafts = (1..=option.rates.len()).filter(fits);
        drafts.map(of).fold(0.0, f64::max)
    };
    let mut best: Option<(&Offer, f64)> = None;
    let narrow = |option: &&Offer| option.arm.width <= width;
    for option in options.get(own)?.iter().filter(narrow) {
        let rate = rate(option);
        // Of equals the first: sources come in their order of preference.
        if best.is_none_or(|(_, least)| rate > least) {
            best = Some((option, rate));
        }
    }
    best.map(|(option, _)| option)
}

/// One more draft for one request.
struct Step {
    own: usize,
    pick: Pick,
    survival: f64,
    value: f64,
}

fn admit(
    chosen: &[Option<&Offer>],
    options: &[Vec<Offer>],
    costs: &Costs,
    limits: StepLimits,
) -> Vec<Option<Pick>> {
    let mut plan: Vec<Option<Pick>> = vec![None; chosen.len()];
    let mut survivals = vec![1.0; chosen.len()];
    let (mut best, mut most) = (plan.clone(), goodput(&plan, options, costs));
    loop {
        let mut room = limits;
        for pick in &plan {
            room.tokens = room.tokens.saturating_sub(Pick::tokens(*pick));
            room.rows = room.rows.saturating_sub(Pick::rows(*pick));
        }
        let steps = chosen.iter().enumerate().filter_map(|(own, option)| {
            let option = (*option)?;
            let now = *plan.get(own)?;
            let drafts = now.map_or(0, |pick| pick.drafts);
            let survival = survivals.get(own)? * option.rates.get(drafts)?;
            let pick = Pick {
                arm: option.arm,
                drafts: drafts + 1,
            };
            let tokens = Pick::tokens(Some(pick)) - Pick::tokens(now);
            let rows = Pick::rows(Some(pick)) - Pick::rows(now);
            (tokens <= room.tokens && rows <= room.rows).then_some(Step {
                own,
                pick,
                survival,
                value: survival / tokens as f64,
            })
        });
        let Some(next) =
            steps.reduce(|best, step| if step.value > best.value { step } else { best })
        else {
            return best;
        };
        if let (Some(pick), Some(survival)) = (plan.get_mut(next.own), survivals.get_mut(next.own))
        {
            (*pick, *survival) = (Some(next.pick), next.survival);
        }
        let rate = goodput(&plan, options, costs);
        if rate > most {
            (best, most) = (plan.clone(), rate);
        }
    }
}

/// A plan as far as it is possible now.
fn possible(
    before: &[Option<Pick>],
    options: &[Vec<Offer>],
    limits: StepLimits,
) -> Vec<Option<Pick>> {
    let (mut tokens, mut rows) = (options.len(), options.len());
    let cut = |(options, before): (&Vec<Offer>, Option<Pick>)| {
        let before = before?;
        let option = options.iter().find(|option| option.arm == before.arm)?;
        let drafts = before.drafts.min(option.rates.len());
        let pick = (drafts > 0).then_some(Pick { drafts, ..before })?;
        let more = (Pick::tokens(Some(pick)) - 1, pick.arm.width - 1);
        let fits = tokens + more.0 <= limits.tokens && rows + more.1 <= limits.rows;
        (tokens, rows) = if fits {
            (tokens + more.0, rows + more.1)
        } else {
            (tokens, rows)
        };
        fits.then_some(pick)
    };
    let before = before.iter().copied().chain(std::iter::repeat(None));
    options.iter().zip(before).map(cut).collect()
}
