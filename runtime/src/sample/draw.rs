//! The draw itself: the highest logit, or the highest logit plus noise.

use super::filter::{Filters, Rank, Survivors, logit_of, token_of};
use super::params::{SamplingError, SamplingParams};
use super::philox::Noise;
use super::race::Race;
use super::scan::{highest, second_highest};

/// Survivors above this part of the vocabulary race in token order, which draws noise in groups.
const WHOLESALE: usize = 8;

/// Draws tokens for one request. Cheap to clone, holds nothing that changes.
#[derive(Clone, Debug)]
pub(crate) struct Sampler {
    pub(super) greedy: bool,
    pub(super) filters: Filters,
    pub(super) seed: u64,
}

/// Memory that draws reuse. One per engine is enough; its contents never influence a draw.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(super) ranked: Vec<Rank>,
    masked: Vec<f32>,
}

impl Scratch {
    /// A copy of logits, for a mask. [`Scratch::give_back`] keeps its memory.
    pub(crate) fn copy(&mut self, logits: &[f32]) -> Vec<f32> {
        let mut copy = std::mem::take(&mut self.masked);
        copy.clear();
        copy.extend_from_slice(logits);
        copy
    }

    /// See [`Scratch::copy`].
    pub(crate) fn give_back(&mut self, copy: Vec<f32>) {
        self.masked = copy;
    }
}

/// One draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Drawn {
    /// The token.
    pub(crate) token: u32,
    /// How far the decision was from going otherwise, in logit units: no change that moves any two
    /// logits relative to each other by less than this gives another token. Counts the gap to the
    /// runner-up (noise included) and filter cuts that could have let in a better token or dropped
    /// this one. Distances to cuts are exact only below `1e-3`; infinite when nothing else can win.
    pub(crate) margin: f32,
}

/// Logits that no token can be drawn from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum DrawError {
    /// A logit is NaN.
    #[error("the logit of token {token} is not a number")]
    NotANumber {
        /// The first such token.
        token: usize,
    },
    /// A logit is positive infinity. Negative infinity is allowed: such a token is excluded.
    #[error("the logit of token {token} is infinite")]
    Infinite {
        /// The first such token.
        token: usize,
    },
    /// No logits, or all of them negative infinity.
    #[error("no token has a finite logit ({vocabulary} logits)")]
    NothingToDraw {
        /// Number of logits.
        vocabulary: usize,
    },
}

impl Sampler {
    /// A sampler for validated parameters; `fresh_seed` is used where they fix none.
    pub(crate) fn new(params: &SamplingParams, fresh_seed: u64) -> Result<Sampler, SamplingError> {
        params.validate()?;
        let mut filters = Filters {
            temperature: f64::from(params.temperature),
            top_k: usize::try_from(params.top_k).unwrap_or(usize::MAX),
            top_p: f64::from(params.top_p),
            min_p: f64::from(params.min_p),
        };
        if filters.top_p == 0.0 {
            // Only the first token survives, and no probability can change that.
            (filters.top_k, filters.top_p) = (1, 1.0);
        }
        Ok(Sampler {
            greedy: params.is_greedy(),
            filters,
            seed: params.seed.unwrap_or(fresh_seed),
        })
    }

    /// The seed in use, given or fresh.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Draws the token at an absolute position (the prompt's first token is at position 0).
    /// `logits` is `[vocabulary]`.
    pub(crate) fn draw(
        &self,
        logits: &[f32],
        position: u64,
        scratch: &mut Scratch,
    ) -> Result<Drawn, DrawError> {
        let highest = highest(logits)?;
        if self.greedy {
            return Ok(greedy(logits, highest));
        }
        let noise = Noise::new(self.seed, position);
        if self.filters.active() {
            let survivors = self.filters.apply(logits, highest, &mut scratch.ranked);
            return Ok(self.race(logits, &scratch.ranked, &survivors, noise));
        }
        let mut race = Race::new(self.filters.temperature, noise);
        race.enter_all(logits, Rank::MAX);
        Ok(race.drawn(race.gap()))
    }

    /// The survivors' race, with the cuts counted in the margin.
    fn race(&self, logits: &[f32], ranked: &[Rank], survivors: &Survivors, noise: Noise) -> Drawn {
        let mut race = Race::new(self.filters.temperature, noise);
        let kept = ranked.get(..survivors.kept).unwrap_or_default();
        if kept.len() > logits.len() / WHOLESALE {
            race.enter_all(logits, kept.iter().copied().max().unwrap_or(0));
        } else {
            for &rank in kept {
                race.enter(token_of(rank), logit_of(rank));
            }
        }
        let mut margin = race.gap();
        for cut in survivors.cuts.iter().flatten() {
            margin = margin.min(cut.leave(race.winner_logit()));
        }
        let dropped = ranked
            .get(survivors.kept..survivors.near)
            .unwrap_or_default();
        for (&rank, cut) in dropped.iter().zip(std::iter::repeat(survivors.binding)) {
            let logit = logit_of(rank);
            let enter = cut.map_or(f64::INFINITY, |cut| cut.enter(logit));
            margin = margin.min(enter.max(race.behind(token_of(rank), logit)));
        }
        race.drawn(margin)
    }
}

/// The lowest id among the highest logits; the margin is the distance to the next logit.
fn greedy(logits: &[f32], highest: f32) -> Drawn {
    let first = logits
        .iter()
        .position(|&logit| logit == highest)
        .unwrap_or_default();
    Drawn {
        token: u32::try_from(first).unwrap_or(u32::MAX),
        margin: highest - second_highest(logits, first),
    }
}
