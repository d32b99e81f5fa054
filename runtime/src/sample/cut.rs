//! Where a filter cut, and how far a token is from the other side of it.
//!
//! Distances are in logit units and follow the convention of a gap between two logits: a distance
//! of `g` can only be crossed when logits move relative to each other by `g` in total.

use super::filter::NEAR;

/// One filter's cut through the ranked tokens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cut {
    /// The `k` highest logits survived.
    TopK {
        /// Lowest logit kept.
        last: f64,
        /// Highest logit dropped, or an upper bound of it.
        next: f64,
    },
    /// The most probable tokens up to a total probability survived.
    TopP {
        last: f64,
        next: f64,
        /// Logit down to which cumulative probability may move the cut within [`NEAR`].
        reach: f64,
        mass: Mass,
    },
    /// Tokens at or above a logit survived.
    MinP {
        threshold: f64,
        /// Highest and second highest logit: the threshold follows the highest.
        highest: f64,
        runner_up: f64,
    },
}

/// Probability mass around a `top_p` cut, unnormalised.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mass {
    /// Of the tokens kept.
    pub(super) kept: f64,
    /// Of all tokens the filter saw.
    pub(super) total: f64,
    /// Log-odds of `top_p`.
    pub(super) target: f64,
    pub(super) temperature: f64,
    /// Highest logit: weights are `exp((logit - highest) / temperature)`.
    pub(super) highest: f64,
}

impl Mass {
    /// Weight of a token.
    pub(super) fn weight(&self, logit: f64) -> f64 {
        ((logit - self.highest) / self.temperature).exp()
    }

    /// Log-odds of a part of the total. Moving every logit by up to `g / 2` moves it by at most
    /// `g / temperature`, which makes it the scale in which a mass has a distance in logit units.
    pub(super) fn log_odds(&self, part: f64) -> f64 {
        let rest = self.total - part;
        if rest <= 0.0 {
            f64::INFINITY
        } else {
            (part.max(0.0) / rest).ln()
        }
    }
}

impl Cut {
    /// Dropped tokens with a logit below this are at least [`NEAR`] away from surviving.
    pub(super) fn floor(&self) -> f64 {
        match self {
            Cut::TopK { last, .. } => last - NEAR,
            Cut::TopP { reach, .. } => reach - NEAR,
            Cut::MinP { threshold, .. } => threshold - NEAR,
        }
    }

    /// Least distance at which a dropped token could have survived.
    pub(super) fn enter(&self, logit: f64) -> f64 {
        match self {
            Cut::TopK { last, .. } => last - logit,
            Cut::TopP { last, mass, .. } => {
                let grow = mass.temperature * (mass.log_odds(mass.kept) - mass.target);
                grow.min(last - logit).max(0.0)
            }
            Cut::MinP { threshold, .. } => threshold - logit,
        }
    }

    /// Least distance at which a kept token could have been dropped.
    pub(super) fn leave(&self, logit: f64) -> f64 {
        match self {
            Cut::TopK { next, .. } => logit - next,
            Cut::TopP { next, mass, .. } => {
                let without = mass.log_odds(mass.kept - mass.weight(logit));
                let shrink = mass.temperature * (mass.target - without);
                shrink.min(logit - next).max(0.0)
            }
            Cut::MinP {
                threshold,
                highest,
                runner_up,
            } if logit == *highest => (highest - runner_up) + (highest - threshold),
            Cut::MinP { threshold, .. } => logit - threshold,
        }
    }
}
