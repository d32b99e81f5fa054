//! Choices over costs and acceptances that were recorded while the shipped checkpoint generated.
//!
//! `recorded.json` was gathered from files of `pawl generate --trace` over the first prompts of
//! `tests/fixtures/prompts.txt`, with `--speculation off` and `mtp` of 1 to 7 fixed drafts: microseconds of steps by their
//! tokens, of drafting by drafts, and how many of 7 drafts each round of the head, and of lookups, got right, greedy and at temperature 0.8. Steps
//! that took more than twice the median were interrupted, and are left out.

use super::*;
use serde::Deserialize;

#[derive(Deserialize)]
struct Recorded {
    steps: BTreeMap<usize, Vec<f64>>,
    drafting: BTreeMap<usize, Vec<f64>>,
    /// By how tokens were drawn and by source.
    accepted: BTreeMap<String, BTreeMap<String, Vec<usize>>>,
}

/// What came of one replay.
struct Replayed {
    rate: f64,
    choices: Vec<Choice>,
}

fn recorded() -> Recorded {
    serde_json::from_str(include_str!("recorded.json")).unwrap()
}

/// What it took where nothing interrupted it. The controller sees what was recorded.
fn median(all: &BTreeMap<usize, Vec<f64>>, at: usize) -> f64 {
    let mut sorted = all[&at].clone();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

impl Recorded {
    /// Generates for `rounds` steps; what is recorded is taken in its order, again and again.
    fn replay(&self, accepted: (Source, &[usize]), policy: DraftPolicy, drafts: usize) -> Replayed {
        let (source, accepted) = accepted;
        let rounds = 6000;
        let limits = StepLimits { drafts, ..LIMITS };
        let mut controller = Controller::new(policy, limits, CostTable::default());
        let of = |all: &BTreeMap<usize, Vec<f64>>, at: usize, round: usize| {
            all.get(&at).map_or(0.0, |seen| seen[round % seen.len()])
        };
        let (mut tokens, mut micros, mut late) = (0, 0.0, (0, 0.0));
        let mut choices = Vec::new();
        for round in 0..rounds {
            let decoding = Decoding {
                request: RequestId(1),
                context: 100,
                room: 1000,
                sources: vec![Available {
                    source,
                    ..head(drafts)
                }],
            };
            let choice = controller.choose(&[decoding])[0];
            let shape = StepShape {
                requests: 1,
                tokens: 1 + choice.drafts,
                context: 100,
            };
            let step = of(&self.steps, shape.tokens, round);
            controller.observe_step(shape, step / 1e6);
            micros += median(&self.steps, shape.tokens);
            if choice.drafts > 0 {
                // A lookup takes next to nothing.
                let drafting = of(&self.drafting, choice.drafts, round);
                let drafting = if source == Source::Head {
                    drafting
                } else {
                    1.0
                };
                controller.observe_drafting(source, choice.drafts, 1, drafting / 1e6);
                micros += if source == Source::Head {
                    median(&self.drafting, choice.drafts)
                } else {
                    1.0
                };
            }
            let right = accepted[round % accepted.len()].min(choice.drafts);
            tokens += 1 + right;
            let told = Round {
                arm: choice.arm(),
                answered: choice.drafts > 0,
                evaluated: (right + 1).min(choice.drafts),
                accepted: right,
                confidences: &[],
            };
            controller.observe_row(RequestId(1), told);
            choices.push(choice);
            if round == rounds / 4 {
                late = (tokens, micros);
            }
        }
        let rate = (tokens - late.0) as f64 / (micros - late.1);
        Replayed { rate, choices }
    }

    /// Tokens per second of every fixed number of drafts, from none on.
    fn fixed(&self, accepted: (Source, &[usize])) -> Vec<f64> {
        let run = |drafts| self.replay(accepted, DraftPolicy::Fixed, drafts).rate;
        (0..=7).map(run).collect()
    }
}

#[test]
fn what_was_recorded_is_drafted_about_as_well_as_can_be() {
    let recorded = recorded();
    let sources = [Source::Head, Source::Lookup].into_iter();
    let all = sources.flat_map(|source| recorded.accepted.iter().map(move |of| (source, of)));
    for (source, (drawn, accepted)) in all {
        let seen = (source, &accepted[&source.to_string()][..]);
        let fixed = recorded.fixed(seen);
        let best = fixed.iter().copied().fold(0.0, f64::max);
        let run = recorded.replay(seen, DraftPolicy::Adaptive, 7);
        let what = format!("{source}, {drawn}: {} of {fixed:?}", run.rate);
        println!("{what}");
        assert!(
            run.rate >= 0.95 * best && run.rate >= 0.97 * fixed[0],
            "{what}"
        );
        // The number chosen most often is one of those that are best.
        let mut counts = BTreeMap::new();
        for choice in run
            .choices
            .iter()
            .skip(1500)
            .filter(|c| c.why != Why::Trial)
        {
            *counts.entry(choice.drafts).or_insert(0) += 1;
        }
        let usual = counts.iter().max_by_key(|(_, count)| **count).unwrap();
        assert!(fixed[*usual.0] >= 0.95 * best, "{what}, {counts:?}");
    }
}

/// The same costs with drafts that are never right.
#[test]
fn what_was_recorded_is_not_drafted_without_use() {
    let recorded = recorded();
    let never = (Source::Head, &[0][..]);
    let run = recorded.replay(never, DraftPolicy::Adaptive, 7);
    let plain = recorded.fixed(never)[0];
    assert!(run.rate >= 0.97 * plain, "{} of {plain}", run.rate);
    let drafting = run.choices[1500..].iter().filter(|c| c.drafts > 0).count();
    assert!(drafting * 100 <= 3 * 4500, "{drafting}");
}
