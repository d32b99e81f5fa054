//! Where a request's time went.

use crate::speculate::{Policy, Round, SpeculationStats, Spent};
use std::time::{Duration, Instant};

/// What running a request took.
///
/// ```no_run
/// # use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
/// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
/// # let engine = Engine::new(model, &EngineOptions::default())?;
/// let stats = engine.generate(Request::from_ids([1]).max_new_tokens(64))?.stats;
/// println!("{:.1} tokens/s in {} steps", stats.decode_tokens_per_second, stats.steps);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RequestStats {
    /// Steps that drew tokens for the request; the one that ends its prompt is the first.
    pub steps: u64,
    /// Tokens generated per such step; 0 before the first.
    pub tokens_per_step: f64,
    /// Seconds from the first step that ran the request to its first token, or to the end of a prompt that is only read.
    pub prefill_seconds: f64,
    /// Seconds from the first token to the last.
    pub decode_seconds: f64,
    /// Tokens after the first, per second of decoding; 0 when there were none.
    pub decode_tokens_per_second: f64,
    /// How well drafts did.
    pub speculation: SpeculationStats,
}

/// The clock of one request.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    steps: u64,
    speculation: SpeculationStats,
    started: Option<Instant>,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
}

impl Clock {
    /// A step that runs the request begins.
    pub(super) fn start(&mut self, now: Instant) {
        self.started.get_or_insert(now);
    }

    /// A step that drew tokens was published.
    pub(super) fn drew(&mut self, now: Instant, round: &Round, spent: &Spent) {
        self.speculation.count(round);
        self.speculation.spend(spent);
        self.steps += 1;
        self.first_token.get_or_insert(now);
        self.last_token = Some(now);
    }

    /// What was decided for the next step.
    pub(super) fn decided(&mut self, next: &Policy) {
        self.speculation.policy = Some(next.clone());
    }

    /// Drafts are not made any more as they were asked for.
    pub(super) fn fell_back(&mut self, reason: &str) {
        self.speculation.fall_back(reason, 1);
    }

    /// A prompt was read to its end, and nothing is drawn.
    pub(super) fn read(&mut self, now: Instant) {
        self.first_token.get_or_insert(now);
    }

    /// The sums, for `generated` tokens.
    pub(super) fn finish(&self, generated: u64) -> RequestStats {
        let between = |from: Option<Instant>, to: Option<Instant>| {
            from.zip(to)
                .map_or(Duration::ZERO, |(from, to)| to.duration_since(from))
                .as_secs_f64()
        };
        let decode_seconds = between(self.first_token, self.last_token);
        RequestStats {
            steps: self.steps,
            tokens_per_step: ratio(generated, self.steps as f64),
            prefill_seconds: between(self.started, self.first_token),
            decode_seconds,
            decode_tokens_per_second: ratio(generated.saturating_sub(1), decode_seconds),
            speculation: self.speculation.clone(),
        }
    }
}

fn ratio(count: u64, over: f64) -> f64 {
    if over > 0.0 { count as f64 / over } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_told_apart() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut clock = Clock::default();
        clock.start(at(0));
        clock.start(at(50));
        clock.drew(at(100), &Round::default(), &Spent::default());
        clock.drew(at(150), &Round::default(), &Spent::default());
        clock.drew(at(300), &Round::default(), &Spent::default());
        let stats = clock.finish(5);
        assert_eq!(
            (stats.steps, stats.prefill_seconds, stats.decode_seconds),
            (3, 0.1, 0.2)
        );
        assert!((stats.tokens_per_step - 5.0 / 3.0).abs() < 1e-12);
        assert!((stats.decode_tokens_per_second - 20.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_generated_divides_by_nothing() {
        assert_eq!(Clock::default().finish(0), RequestStats::default());
    }
}
