//! How often drafts are right, by where they stand.

use super::Source;
use crate::ids::RequestId;
use std::collections::{BTreeMap, HashMap};

/// Positions in a row that are told apart; later ones are taken to be like the last.
const POSITIONS: usize = 16;
/// What is kept of a request's counts, and of all requests' counts, when a draft at the same position is compared.
const KEPT: f64 = 0.98;
const KEPT_OF_ALL: f64 = 0.99;
/// Weight of what is expected beforehand, in compared drafts: of all requests, and of one.
const PRIOR_OF_ALL: f64 = 3.0;
const PRIOR_OF_ANSWERS: f64 = 1.0;
const PRIOR: f64 = 6.0;
/// Chance that a first draft is right before anything is known: the mean of Beta(2, 1).
const UNKNOWN: f64 = 2.0 / 3.0;
/// Chance that a row beside the best one is right where that one is wrong, before anything is known.
const BESIDE: f64 = 0.3;
/// Compared drafts that still count when a drafter is tried again, or is not any more what it was.
const AFTER_CHANGE: f64 = 1.0;
/// A row of rounds without any right draft that is less likely than this means that the drafter changed.
const UNLIKELY: f64 = 1e-4;
/// Classes of a drafter's own confidence.
const CLASSES: usize = 10;

/// Where drafts come from and how many rows they take at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Arm {
    /// The source.
    pub(crate) source: Source,
    /// Rows that it may fill, at most; not those that it came to fill.
    pub(crate) width: usize,
}

/// Acceptance of all requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Acceptance {
    all: BTreeMap<Arm, Rates>,
    requests: HashMap<RequestId, BTreeMap<Arm, Rates>>,
    confidence: BTreeMap<Source, Calibration>,
}

impl Acceptance {
    /// Counts the drafts of one row: those compared, of which the first `accepted` were right. What was not compared was
    /// not seen.
    pub(super) fn observe(
        &mut self,
        request: RequestId,
        arm: Arm,
        (evaluated, accepted): (usize, usize),
        confidences: &[f32],
    ) {
        let own = self.requests.entry(request).or_default();
        own.entry(arm)
            .or_default()
            .observe(evaluated, accepted, KEPT);
        self.all
            .entry(arm)
            .or_default()
            .observe(evaluated, accepted, KEPT_OF_ALL);
        let calibration = self.confidence.entry(arm.source).or_default();
        for (position, confidence) in confidences.iter().enumerate().take(evaluated) {
            calibration.observe(*confidence, position < accepted);
        }
    }

    /// Counts that a source was asked, and whether it had drafts. It has some or not, whatever rows it may fill.
    pub(super) fn asked(&mut self, request: RequestId, arm: Arm, answered: bool) {
        let arm = Arm { width: 1, ..arm };
        let own = self.requests.entry(request).or_default();
        own.entry(arm).or_default().asked(answered, KEPT);
        self.all
            .entry(arm)
            .or_default()
            .asked(answered, KEPT_OF_ALL);
    }

    /// Chance that a source that is asked has drafts.
    pub(super) fn answers(&self, request: RequestId, arm: Arm) -> f64 {
        let arm = Arm { width: 1, ..arm };
        let none = Rates::default();
        let own = self.requests.get(&request).and_then(|arms| arms.get(&arm));
        let all = self.all.get(&arm).unwrap_or(&none);
        let expected = all.answers(1.0, PRIOR_OF_ANSWERS);
        own.unwrap_or(&none).answers(expected, PRIOR)
    }

    /// Chances that drafts at positions 0, 1, .. are right, each given that those before are. `confidence` is the source's
    /// own of its first draft.
    pub(super) fn rates(
        &self,
        request: RequestId,
        arm: Arm,
        count: usize,
        confidence: Option<f32>,
    ) -> Vec<f64> {
        let none = Rates::default();
        let own = self
            .requests
            .get(&request)
            .and_then(|arms| arms.get(&arm))
            .unwrap_or(&none);
        let mut rates = Vec::with_capacity(count);
        let mut expected = self.expected_first(arm);
        for position in 0..count {
            // A later position is expected to be as good as the one before, until seen.
            let all = self.all.get(&arm).unwrap_or(&none);
            expected = all.rate(position, expected, PRIOR_OF_ALL);
            let mut rate = own.rate(position, expected, PRIOR);
            if let Some(confidence) = confidence.filter(|_| position == 0) {
                rate = self.calibrated(arm.source, confidence, rate);
            }
            rates.push(rate);
        }
        rates
    }

    /// Chance that the draft at a position is right, given that those before are, over all requests.
    pub(super) fn overall(&self, arm: Arm, position: usize) -> f64 {
        let none = Rates::default();
        let all = self.all.get(&arm).unwrap_or(&none);
        (0..=position).fold(self.expected_first(arm), |expected, position| {
            all.rate(position, expected, PRIOR_OF_ALL)
        })
    }

    /// Chance that a draft of this confidence is right, given that those before are.
    pub(super) fn calibrated(&self, source: Source, confidence: f32, expected: f64) -> f64 {
        let known = self.confidence.get(&source);
        known.map_or(expected, |known| known.chance(confidence, expected))
    }

    /// Forgets most of what a request's drafter did, so that a few drafts decide.
    pub(super) fn relax(&mut self, request: RequestId, source: Source) {
        if let Some(arms) = self.requests.get_mut(&request) {
            for (_, rates) in arms.iter_mut().filter(|(arm, _)| arm.source == source) {
                rates.mostly_forget();
            }
        }
    }

    /// Forgets a request.
    pub(super) fn forget(&mut self, request: RequestId) {
        self.requests.remove(&request);
    }

    fn expected_first(&self, arm: Arm) -> f64 {
        let one = Arm { width: 1, ..arm };
        let alone = self
            .all
            .get(&one)
            .map_or(UNKNOWN, |rates| rates.rate(0, UNKNOWN, PRIOR_OF_ALL));
        // A source whose best guess is never right has no good second ones.
        let each = BESIDE * (alone / UNKNOWN).min(1.0);
        let beside = (1..arm.width).fold(0.0, |sum, _| sum + (1.0 - sum) * each);
        alone + (1.0 - alone) * beside
    }
}

/// Right and compared drafts by position, older ones counting less.
#[derive(Clone, Copy, Debug, Default)]
struct Rates {
    positions: [(f64, f64); POSITIONS],
    /// Times that there were drafts, and times that they were asked for.
    answers: (f64, f64),
    /// Rounds without a right draft, the latest ones.
    wrong: i32,
}

impl Rates {
    fn observe(&mut self, evaluated: usize, accepted: usize, kept: f64) {
        for (position, (right, compared)) in self.positions.iter_mut().enumerate() {
            // What is not seen any more counts less and less, too.
            *right *= kept;
            *compared *= kept;
            if position < evaluated {
                *right += f64::from(u8::from(position < accepted));
                *compared += 1.0;
            }
        }
        self.wrong = if accepted == 0 {
            self.wrong.saturating_add(1)
        } else {
            0
        };
        // Later positions are not seen while the first is wrong: without this they would stay as good as they were.
        let (right, compared) = self.positions.first().copied().unwrap_or_default();
        if (1.0 - right / compared.max(1.0)).powi(self.wrong) < UNLIKELY {
            self.mostly_forget();
            self.wrong = 0;
        }
    }

    fn asked(&mut self, answered: bool, kept: f64) {
        let (answers, asked) = self.answers;
        let answers = answers * kept + f64::from(u8::from(answered));
        self.answers = (answers, asked * kept + 1.0);
    }

    fn answers(&self, expected: f64, prior: f64) -> f64 {
        (self.answers.0 + prior * expected) / (self.answers.1 + prior)
    }

    fn rate(&self, position: usize, expected: f64, prior: f64) -> f64 {
        let counts = self.positions.get(position.min(POSITIONS - 1));
        let (right, compared) = counts.copied().unwrap_or_default();
        (right + prior * expected) / (compared + prior)
    }

    fn mostly_forget(&mut self) {
        for (right, compared) in self.positions.iter_mut().chain([&mut self.answers]) {
            let kept = AFTER_CHANGE / compared.max(AFTER_CHANGE);
            *right *= kept;
            *compared *= kept;
        }
    }
}

/// How often drafts were right of which their source was so and so sure.
#[derive(Clone, Copy, Debug, Default)]
struct Calibration([(f64, f64); CLASSES]);

impl Calibration {
    fn observe(&mut self, confidence: f32, right: bool) {
        if let Some((hits, compared)) = class(confidence).and_then(|class| self.0.get_mut(class)) {
            *hits = *hits * KEPT_OF_ALL + f64::from(u8::from(right));
            *compared = *compared * KEPT_OF_ALL + 1.0;
        }
    }

    fn chance(&self, confidence: f32, expected: f64) -> f64 {
        let counts = class(confidence).and_then(|class| self.0.get(class));
        let (hits, compared) = counts.copied().unwrap_or_default();
        (hits + PRIOR_OF_ALL * expected) / (compared + PRIOR_OF_ALL)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the classes"
)]
fn class(confidence: f32) -> Option<usize> {
    let scaled = confidence.clamp(0.0, 1.0) * CLASSES as f32;
    (!confidence.is_nan()).then_some((scaled as usize).min(CLASSES - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAIN: Arm = Arm {
        source: Source::Head,
        width: 1,
    };
    const REQUEST: RequestId = RequestId(1);

    fn after(rounds: usize, evaluated: usize, accepted: usize) -> Acceptance {
        let mut acceptance = Acceptance::default();
        for _ in 0..rounds {
            acceptance.observe(REQUEST, CHAIN, (evaluated, accepted), &[]);
        }
        acceptance
    }

    #[test]
    fn what_was_not_compared_was_not_seen() {
        let rates = after(30, 2, 1).rates(REQUEST, CHAIN, 3, None);
        assert!(rates[0] > 0.9, "{rates:?}");
        assert!(rates[1] < 0.1, "{rates:?}");
        // As good as the position before, of which something is known.
        assert!((rates[2] - rates[1]).abs() < 0.1, "{rates:?}");
        let unknown = Acceptance::default().rates(REQUEST, CHAIN, 2, None);
        assert!(unknown.iter().all(|rate| (rate - UNKNOWN).abs() < 1e-9));
        let deep = after(30, 20, 20).rates(REQUEST, CHAIN, 20, None);
        assert!(deep.iter().all(|rate| *rate > 0.9));
    }

    #[test]
    fn a_new_request_starts_where_the_others_are() {
        let mut acceptance = after(60, 1, 0);
        let other = RequestId(2);
        assert!(acceptance.rates(other, CHAIN, 1, None)[0] < 0.1);
        for _ in 0..30 {
            acceptance.observe(other, CHAIN, (1, 1), &[]);
        }
        assert!(acceptance.rates(other, CHAIN, 1, None)[0] > 0.85);
        assert!(acceptance.rates(REQUEST, CHAIN, 1, None)[0] < 0.2);
        acceptance.forget(other);
        assert!(acceptance.rates(other, CHAIN, 1, None)[0] < 0.7);
        assert!(!acceptance.requests.contains_key(&other));
    }

    #[test]
    fn a_source_that_has_nothing_is_expected_to_have_nothing() {
        let mut acceptance = Acceptance::default();
        assert!((acceptance.answers(REQUEST, CHAIN) - 1.0).abs() < 1e-9);
        for _ in 0..100 {
            acceptance.asked(REQUEST, CHAIN, false);
        }
        assert!(acceptance.answers(REQUEST, CHAIN) < 0.01);
        assert!(acceptance.answers(RequestId(2), CHAIN) < 0.05);
        // What it has when it has some is another matter.
        assert!(acceptance.rates(REQUEST, CHAIN, 1, None)[0] > 0.6);
        acceptance.relax(REQUEST, Source::Head);
        for _ in 0..8 {
            acceptance.asked(REQUEST, CHAIN, true);
        }
        assert!(acceptance.answers(REQUEST, CHAIN) > 0.5);
    }

    #[test]
    fn what_changed_is_noticed() {
        let mut acceptance = after(100, 1, 0);
        acceptance.relax(REQUEST, Source::Lookup);
        assert!(acceptance.rates(REQUEST, CHAIN, 1, None)[0] < 0.05);
        acceptance.relax(REQUEST, Source::Head);
        for _ in 0..8 {
            acceptance.observe(REQUEST, CHAIN, (1, 1), &[]);
        }
        assert!(acceptance.rates(REQUEST, CHAIN, 1, None)[0] > 0.5);
    }

    #[test]
    fn more_rows_are_expected_to_be_right_more_often() {
        let acceptance = after(50, 1, 0);
        let wide = |width| acceptance.rates(REQUEST, Arm { width, ..CHAIN }, 1, None)[0];
        assert!(wide(1) < wide(2) && wide(2) < wide(3) && wide(8) < 1.0);
    }

    #[test]
    fn a_sources_own_confidence_is_calibrated() {
        let mut acceptance = Acceptance::default();
        for _ in 0..40 {
            acceptance.observe(REQUEST, CHAIN, (2, 1), &[0.95, 0.55]);
            acceptance.observe(REQUEST, CHAIN, (1, 0), &[0.55, 0.95]);
        }
        let sure = acceptance.rates(REQUEST, CHAIN, 1, Some(0.97))[0];
        let unsure = acceptance.rates(REQUEST, CHAIN, 1, Some(0.5))[0];
        let other = acceptance.rates(REQUEST, CHAIN, 1, Some(f32::NAN))[0];
        assert!(
            sure > 0.9 && unsure < 0.1 && other > 0.2 && other < 0.8,
            "{sure} {unsure} {other}"
        );
    }
}
