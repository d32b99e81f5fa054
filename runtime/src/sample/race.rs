//! The race for the highest perturbed score.

use super::draw::Drawn;
use super::filter::{Rank, rank};
use super::philox::{GROUP, Noise, gumbel, least_word};
use super::scan::max_of;

/// Best and second best of `logit / temperature + noise`; equal scores go to the lower id.
pub(super) struct Race {
    temperature: f64,
    noise: Noise,
    /// Score, token and logit.
    best: (f64, u32, f64),
    second: f64,
}

impl Race {
    pub(super) fn new(temperature: f64, noise: Noise) -> Race {
        let nobody = (f64::NEG_INFINITY, u32::MAX, f64::NEG_INFINITY);
        Race {
            temperature,
            noise,
            best: nobody,
            second: f64::NEG_INFINITY,
        }
    }

    /// Lets one token race.
    pub(super) fn enter(&mut self, token: u32, logit: f64) {
        self.enter_with(token, logit, self.noise.word(token));
    }

    /// Lets every token race that ranks no worse than `worst`. Draws noise in groups, and looks at
    /// tokens one by one only where the highest logit with the highest noise of the group could win.
    pub(super) fn enter_all(&mut self, logits: &[f32], worst: Rank) {
        for (first, group) in (0u32..).step_by(GROUP).zip(logits.chunks(GROUP)) {
            let words = self.noise.group(first);
            let highest = words.iter().flatten().copied().max().unwrap_or(0);
            if u64::from(highest) >= self.needed(f64::from(max_of(group))) {
                self.enter_group(first, group, &words, worst);
            }
        }
    }

    fn enter_group<const B: usize>(
        &mut self,
        first: u32,
        logits: &[f32],
        words: &[[u32; B]; 4],
        worst: Rank,
    ) {
        let words = (0..B).flat_map(|block| words.iter().filter_map(move |lane| lane.get(block)));
        for ((token, &logit), &word) in (first..).zip(logits).zip(words) {
            let could_win = u64::from(word) >= self.needed(f64::from(logit));
            if could_win && logit > f32::NEG_INFINITY && rank(logit, token) <= worst {
                self.enter_with(token, f64::from(logit), word);
            }
        }
    }

    /// The least word with which a logit could be second, or less.
    fn needed(&self, logit: f64) -> u64 {
        const ROUNDING: f64 = 1e-9;
        least_word(self.second - logit / self.temperature - ROUNDING)
    }

    pub(super) fn enter_with(&mut self, token: u32, logit: f64, word: u32) {
        let score = logit / self.temperature + gumbel(word);
        if score > self.best.0 || (score == self.best.0 && token < self.best.1) {
            self.second = self.best.0;
            self.best = (score, token, logit);
        } else if score > self.second {
            self.second = score;
        }
    }

    /// The winner's logit.
    pub(super) fn winner_logit(&self) -> f64 {
        self.best.2
    }

    /// Distance of the two best, in logit units.
    pub(super) fn gap(&self) -> f64 {
        (self.best.0 - self.second) * self.temperature
    }

    /// How far a token that did not race would have been behind the winner, in logit units.
    pub(super) fn behind(&self, token: u32, logit: f64) -> f64 {
        let score = logit / self.temperature + gumbel(self.noise.word(token));
        (self.best.0 - score) * self.temperature
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a margin needs no more precision"
    )]
    pub(super) fn drawn(&self, margin: f64) -> Drawn {
        Drawn {
            token: self.best.1,
            margin: margin as f32,
        }
    }
}
