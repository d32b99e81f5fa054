//! The draw itself: the highest logit, or the highest logit plus noise.

use super::filter::{Filters, Rank, Survivors, logit_of, token_of};
use super::params::{SamplingError, SamplingParams};
use super::philox::{GUMBEL_MAX, Noise, gumbel};

/// Draws tokens for one request. Cheap to clone, holds nothing that changes.
#[derive(Clone, Debug)]
pub(crate) struct Sampler {
    greedy: bool,
    filters: Filters,
    seed: u64,
}

/// Memory that draws reuse. One per engine is enough; its contents never influence a draw.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    ranked: Vec<Rank>,
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

    /// Whether the highest logit always wins.
    pub(crate) fn is_greedy(&self) -> bool {
        self.greedy
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
            return Ok(self.race(&scratch.ranked, &survivors, noise));
        }
        Ok(self.race_all(logits, noise))
    }

    /// The survivors' race, with the cuts counted in the margin.
    fn race(&self, ranked: &[Rank], survivors: &Survivors, noise: Noise) -> Drawn {
        let mut race = Race::new(self.filters.temperature);
        for &rank in ranked.iter().take(survivors.kept) {
            race.enter(token_of(rank), logit_of(rank), |token| noise.word(token));
        }
        let mut margin = race.gap();
        for cut in survivors.cuts.iter().flatten() {
            margin = margin.min(cut.leave(race.winner_logit));
        }
        let dropped = ranked
            .get(survivors.kept..survivors.near)
            .unwrap_or_default();
        for (&rank, cut) in dropped.iter().zip(std::iter::repeat(survivors.binding)) {
            let (token, logit) = (token_of(rank), logit_of(rank));
            let score = logit / self.filters.temperature + gumbel(noise.word(token));
            let behind = (race.best.0 - score) * self.filters.temperature;
            let enter = cut.map_or(f64::INFINITY, |cut| cut.enter(logit));
            margin = margin.min(enter.max(behind));
        }
        race.drawn(margin)
    }

    /// The race of the whole vocabulary.
    fn race_all(&self, logits: &[f32], noise: Noise) -> Drawn {
        let mut race = Race::new(self.filters.temperature);
        for (block, chunk) in (0u32..).zip(logits.chunks(4)) {
            let words = noise.block(block);
            for ((token, &logit), word) in (4 * block..).zip(chunk).zip(words) {
                race.enter(token, f64::from(logit), |_| word);
            }
        }
        let gap = race.gap();
        race.drawn(gap)
    }
}

/// Best and second best of `logit / temperature + noise`; equal scores go to the lower id.
struct Race {
    temperature: f64,
    /// Score and token.
    best: (f64, u32),
    second: f64,
    winner_logit: f64,
}

impl Race {
    fn new(temperature: f64) -> Race {
        Race {
            temperature,
            best: (f64::NEG_INFINITY, u32::MAX),
            second: f64::NEG_INFINITY,
            winner_logit: f64::NEG_INFINITY,
        }
    }

    #[inline]
    fn enter(&mut self, token: u32, logit: f64, word: impl FnOnce(u32) -> u32) {
        let scaled = logit / self.temperature;
        if scaled + GUMBEL_MAX < self.second {
            return;
        }
        let score = scaled + gumbel(word(token));
        if score > self.best.0 || (score == self.best.0 && token < self.best.1) {
            self.second = self.best.0;
            self.best = (score, token);
            self.winner_logit = logit;
        } else if score > self.second {
            self.second = score;
        }
    }

    /// Distance of the two best, in logit units.
    fn gap(&self) -> f64 {
        (self.best.0 - self.second) * self.temperature
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a margin needs no more precision"
    )]
    fn drawn(&self, margin: f64) -> Drawn {
        Drawn {
            token: self.best.1,
            margin: margin as f32,
        }
    }
}

/// The highest logit, once every logit is known to be usable.
fn highest(logits: &[f32]) -> Result<f32, DrawError> {
    let mut highest = f32::NEG_INFINITY;
    let mut usable = true;
    for &logit in logits {
        usable &= logit < f32::INFINITY;
        highest = if logit > highest { logit } else { highest };
    }
    if !usable {
        let token = logits
            .iter()
            .position(|logit| logit.is_nan() || *logit == f32::INFINITY);
        let token = token.unwrap_or_default();
        return Err(match logits.get(token) {
            Some(logit) if logit.is_nan() => DrawError::NotANumber { token },
            _ => DrawError::Infinite { token },
        });
    }
    if highest == f32::NEG_INFINITY {
        return Err(DrawError::NothingToDraw {
            vocabulary: logits.len(),
        });
    }
    Ok(highest)
}

/// The lowest id among the highest logits; the margin is the distance to the next logit.
fn greedy(logits: &[f32], highest: f32) -> Drawn {
    let first = logits
        .iter()
        .position(|&logit| logit == highest)
        .unwrap_or_default();
    let (before, after) = logits.split_at(first);
    let others = before.iter().chain(after.iter().skip(1));
    let second = others.fold(
        f32::NEG_INFINITY,
        |best, &logit| if logit > best { logit } else { best },
    );
    Drawn {
        token: u32::try_from(first).unwrap_or(u32::MAX),
        margin: highest - second,
    }
}
