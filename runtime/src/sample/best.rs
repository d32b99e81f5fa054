//! The best few tokens of a draw, for drafts that branch.

use super::draw::{DrawError, Sampler, Scratch};
use super::filter::{Rank, logit_of, token_of};
use super::philox::{Noise, gumbel};
use super::scan::highest;

/// Tokens beyond those asked for over which probabilities are normalised.
const BESIDE: usize = 4;

/// The highest noise there is, rounded up: a bound that saves drawing it.
const MOST_NOISE: f64 = 23.0;

/// The tokens of highest score so far, best first; equal scores go to the lower id.
struct Podium {
    places: usize,
    best: Vec<(f64, u32)>,
}

impl Podium {
    fn new(places: usize) -> Self {
        Self {
            places,
            best: Vec::with_capacity(places + 1),
        }
    }

    /// The score that must be reached to get a place.
    fn bar(&self) -> f64 {
        let last = self.best.last().filter(|_| self.best.len() >= self.places);
        last.map_or(f64::NEG_INFINITY, |(score, _)| *score)
    }

    fn enter(&mut self, score: f64, token: u32) {
        let before = |(s, t): &(f64, u32)| *s > score || (*s == score && *t < token);
        let at = self.best.partition_point(before);
        self.best.insert(at, (score, token));
        self.best.truncate(self.places);
    }
}

impl Sampler {
    /// The token that [`Sampler::draw`] gives, then the ones that would be drawn without those before them, `count` in all
    /// or fewer; each with the logarithm of its share among the best, noise included. The shares say how clear the
    /// decision is; they are no probabilities of the model.
    pub(crate) fn best(
        &self,
        logits: &[f32],
        position: u64,
        count: usize,
        scratch: &mut Scratch,
    ) -> Result<Vec<(u32, f32)>, DrawError> {
        let highest = highest(logits)?;
        let mut podium = Podium::new(count + BESIDE);
        let all = (0u32..).zip(logits.iter().map(|&logit| f64::from(logit)));
        let all = all.filter(|(_, logit)| *logit > f64::NEG_INFINITY);
        if self.greedy {
            all.for_each(|(token, logit)| {
                if logit > podium.bar() {
                    podium.enter(logit, token);
                }
            });
            return Ok(shares(&podium, count));
        }
        let noise = Noise::new(self.seed, position);
        let mut race = |token: u32, logit: f64| {
            let score = logit / self.filters.temperature;
            if score + MOST_NOISE > podium.bar() {
                podium.enter(score + gumbel(noise.word(token)), token);
            }
        };
        if self.filters.active() {
            let survivors = self.filters.apply(logits, highest, &mut scratch.ranked);
            let kept = scratch.ranked.get(..survivors.kept).unwrap_or_default();
            let entries = kept
                .iter()
                .map(|&rank: &Rank| (token_of(rank), logit_of(rank)));
            entries.for_each(|(token, logit)| race(token, logit));
        } else {
            all.for_each(|(token, logit)| race(token, logit));
        }
        Ok(shares(&podium, count))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a share needs no more precision"
)]
fn shares(podium: &Podium, count: usize) -> Vec<(u32, f32)> {
    let first = podium.best.first().map_or(0.0, |(score, _)| *score);
    let sum: f64 = podium.best.iter().map(|(s, _)| (s - first).exp()).sum();
    let share = |(score, token): &(f64, u32)| (*token, (score - first - sum.ln()) as f32);
    podium.best.iter().take(count).map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::SamplingParams;
    use proptest::prelude::*;

    fn params() -> impl Strategy<Value = SamplingParams> {
        let sampled = (0.2f32..2.0, 0u32..9, 0.3f32..=1.0, 0.0f32..0.3).prop_map(
            |(temperature, top_k, top_p, min_p)| {
                SamplingParams::sampled(temperature)
                    .top_k(top_k)
                    .top_p(top_p)
                    .min_p(min_p)
            },
        );
        prop_oneof![Just(SamplingParams::greedy()), sampled]
    }

    proptest! {
        #[test]
        fn each_place_is_the_draw_without_those_before(
            logits in prop::collection::vec(-4.0f32..4.0, 1..80),
            params in params(), seed in 0u64..50, position in 0u64..50, count in 1usize..5,
        ) {
            let unfiltered = SamplingParams::sampled(params.temperature.max(0.1));
            let params = if params.is_greedy() { params } else { unfiltered };
            let sampler = Sampler::new(&params, seed).unwrap();
            let mut scratch = Scratch::default();
            let best = sampler.best(&logits, position, count, &mut scratch).unwrap();
            prop_assert_eq!(best.len(), count.min(logits.len()));
            let mut left = logits.clone();
            for (token, _) in &best {
                let drawn = sampler.draw(&left, position, &mut scratch).unwrap();
                prop_assert_eq!(drawn.token, *token);
                left[usize::try_from(*token).unwrap()] = f32::NEG_INFINITY;
            }
        }

        #[test]
        fn the_first_place_is_the_draw_with_every_filter(
            logits in prop::collection::vec(-4.0f32..4.0, 1..80),
            params in params(), seed in 0u64..50, position in 0u64..50,
        ) {
            let sampler = Sampler::new(&params, seed).unwrap();
            let mut scratch = Scratch::default();
            let best = sampler.best(&logits, position, 3, &mut scratch).unwrap();
            let drawn = sampler.draw(&logits, position, &mut scratch).unwrap();
            prop_assert_eq!(best[0].0, drawn.token);
            let sum: f32 = best.iter().map(|(_, share)| share.exp()).sum();
            prop_assert!(sum <= 1.0 + 1e-5);
            prop_assert!(best.is_sorted_by(|a, b| a.1 >= b.1));
        }
    }
}
