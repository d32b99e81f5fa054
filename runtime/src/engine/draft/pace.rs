//! What steps with trees and with chains really gave: the guard of the controller's expectations of trees.

use crate::engine::active::Delivered;
use std::time::Duration;

/// What a step did for its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Chain,
    Tree,
}

/// Seconds and tokens of the steps of each kind, older ones counting less.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    chains: Sum,
    trees: Sum,
    /// Steps without trees since they were last on offer, and after how many they are again.
    withheld: usize,
    wait: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    seconds: f64,
    tokens: f64,
    /// Steps, older ones counting less.
    weight: f64,
    steps: u32,
}

/// What is kept of the sums with every step.
const KEPT: f64 = 0.97;
/// Steps of a kind before it is compared.
const ENOUGH: u32 = 5;
/// Steps without trees after which they are on offer for one, so that a change is noticed: the first time, and the most.
const FIRST_WAIT: usize = 48;
const LONGEST_WAIT: usize = 768;

impl Kind {
    /// What a published step did, if it did the same for all its requests.
    fn of(delivered: &[Delivered]) -> Option<Self> {
        let kind = |told: &Delivered| match (told.round.proposed, told.round.rows) {
            (0, _) => None,
            (_, 0 | 1) => Some(Self::Chain),
            _ => Some(Self::Tree),
        };
        let first = kind(delivered.first()?);
        let same = delivered.iter().all(|told| kind(told) == first);
        first.filter(|_| same)
    }
}

impl Pace {
    /// Counts a step that only decoded and took so long, drafting included.
    pub(super) fn count(&mut self, delivered: &[Delivered], time: Duration) {
        let Some(kind) = Kind::of(delivered) else {
            return;
        };
        let tokens: usize = delivered.iter().map(|told| told.round.accepted + 1).sum();
        let sum = self.sum_mut(kind);
        // A step that was interrupted says nothing about its kind.
        if sum.steps >= ENOUGH && time.as_secs_f64() > 4.0 * sum.seconds / sum.weight {
            return;
        }
        sum.weight = sum.weight * KEPT + 1.0;
        sum.seconds = sum.seconds * KEPT + time.as_secs_f64();
        sum.tokens = sum.tokens * KEPT + tokens as f64;
        sum.steps = sum.steps.saturating_add(1);
    }

    /// Whether trees are known to give fewer tokens per second than chains.
    fn trees_are_slower(&self) -> bool {
        let (trees, chains) = (self.trees, self.chains);
        let known = trees.steps >= ENOUGH && chains.steps >= ENOUGH;
        known && trees.seconds * chains.tokens > chains.seconds * trees.tokens
    }

    /// Counts a step; whether trees are on offer in the next one. While they give less than chains they are seldom.
    pub(super) fn offers_trees(&mut self) -> bool {
        if !self.trees_are_slower() {
            (self.withheld, self.wait) = (0, FIRST_WAIT);
            return true;
        }
        self.withheld += 1;
        let due = self.withheld > self.wait.max(FIRST_WAIT);
        if due {
            (self.withheld, self.wait) = (0, (2 * self.wait).clamp(FIRST_WAIT, LONGEST_WAIT));
        }
        due
    }

    fn sum_mut(&mut self, kind: Kind) -> &mut Sum {
        match kind {
            Kind::Chain => &mut self.chains,
            Kind::Tree => &mut self.trees,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speculate::{DraftTree, Round};

    fn told(proposed: usize, accepted: usize, rows: usize) -> Delivered {
        Delivered {
            request: crate::ids::RequestId(1),
            round: Round {
                proposed,
                accepted,
                rows,
                ..Round::default()
            },
            draws: Vec::new(),
            ran: DraftTree::default(),
            arm: None,
            made: proposed,
            confidences: Vec::new(),
            why: None,
            next: None,
            told: Ok(crate::engine::active::Delivery::default()),
        }
    }

    /// Trees that take longer for as many tokens, then trees that take as long for more.
    #[test]
    fn what_gives_fewer_tokens_in_its_time_is_slower() {
        let mut pace = Pace::default();
        for turn in 0..40 {
            let accepted = 1 + turn % 2;
            pace.count(&[told(0, 0, 1)], Duration::from_micros(100));
            pace.count(&[told(3, accepted, 1)], Duration::from_micros(200));
            pace.count(&[told(8, accepted, 4)], Duration::from_micros(300));
            // Mixed steps, and one that was interrupted, count for nobody.
            pace.count(&[told(0, 0, 1), told(3, 0, 1)], Duration::from_secs(9));
            if turn == 30 {
                pace.count(&[told(3, 0, 1)], Duration::from_secs(1));
            }
        }
        assert!(pace.trees_are_slower());
        let offered = (0..5000).filter(|_| pace.offers_trees()).count();
        assert!((5..12).contains(&offered), "{offered}");
        for _ in 0..200 {
            pace.count(&[told(8, 4, 4)], Duration::from_micros(250));
        }
        assert!(!pace.trees_are_slower());
        assert!((0..100).all(|_| pace.offers_trees()));
    }
}
