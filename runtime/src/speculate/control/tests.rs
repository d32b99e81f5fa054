mod limits;
mod replay;

use super::*;
use crate::speculate::verify::distribution::random;
use std::collections::BTreeMap;

const LIMITS: StepLimits = StepLimits {
    drafts: 7,
    width: 1,
    rows: 16,
    tokens: 64,
};

/// Chance that a draft is right: of the request, at the position, after so many tokens of the request.
type Right = fn(u64, Source, usize, usize) -> f64;

/// Whether a source has drafts when it is asked, after so many tokens.
type Answers = fn(usize) -> bool;

/// What is true in a simulation, and what the controller learns by and by.
struct World {
    /// Seconds of a step by requests and tokens.
    step: fn(usize, usize) -> f64,
    /// Seconds of drafting by drafts.
    draft: fn(Source, usize) -> f64,
    right: Right,
    answers: Answers,
    /// How much a measurement is off, as a part of it.
    noise: f64,
}

struct Simulation {
    world: World,
    controller: Controller,
    sources: Vec<Available>,
    /// Whether rows beside the first are as wrong as it is.
    wrong_everywhere: bool,
    random: u64,
    /// By request.
    tokens: Vec<usize>,
    seconds: f64,
    choices: Vec<Vec<Choice>>,
}

fn head(drafts: usize) -> Available {
    Available {
        source: Source::Head,
        drafts,
        width: 1,
        confidence: None,
        unproven: false,
    }
}

impl Simulation {
    fn new(world: World, requests: usize) -> Self {
        Self {
            world,
            controller: Controller::new(DraftPolicy::Adaptive, LIMITS, CostTable::default()),
            sources: vec![head(7)],
            wrong_everywhere: false,
            random: 1,
            tokens: vec![0; requests],
            seconds: 0.0,
            choices: Vec::new(),
        }
    }

    fn chance(&mut self) -> f64 {
        (random(&mut self.random) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A measurement: mostly a little off, now and then far off.
    fn measured(&mut self, seconds: f64) -> f64 {
        let (off, outlier) = (self.chance(), self.chance());
        let far = if outlier < 0.02 { 6.0 } else { 1.0 };
        seconds * (1.0 + self.world.noise * (off - 0.5)) * far
    }

    fn step(&mut self) {
        let batch = self.tokens.iter().zip(0..).map(|(tokens, id)| Decoding {
            request: RequestId(id),
            context: 100 + tokens,
            room: 1000,
            sources: self.sources.clone(),
        });
        let batch: Vec<_> = batch.collect();
        let choices = self.controller.choose(&batch);
        let requests = batch.len();
        self.draft(&choices);
        let answers = |own: usize| (self.world.answers)(self.tokens[own]);
        let run =
            |(own, choice): (usize, &Choice)| Pick::tokens(choice.pick().filter(|_| answers(own)));
        let tokens: usize = choices.iter().enumerate().map(run).sum();
        assert!(tokens <= LIMITS.tokens.max(requests));
        let seconds = (self.world.step)(requests, tokens);
        self.seconds += seconds;
        let seen = self.measured(seconds);
        let context = batch.iter().map(|decoding| decoding.context).max().unwrap();
        let shape = StepShape {
            requests,
            tokens,
            context,
        };
        self.controller.observe_step(shape, seen);
        for (own, choice) in choices.iter().enumerate() {
            self.accept(own, choice);
        }
        self.choices.push(choices);
    }

    fn draft(&mut self, choices: &[Choice]) {
        for source in Source::ALL {
            let of = choices
                .iter()
                .filter(|choice| choice.source == Some(source));
            let (count, most) = (of.clone().count(), of.map(|choice| choice.drafts).max());
            if let Some(most) = most {
                let seconds = (self.world.draft)(source, most);
                self.seconds += seconds;
                let seen = self.measured(seconds);
                self.controller.observe_drafting(source, most, count, seen);
            }
        }
    }

    fn accept(&mut self, own: usize, choice: &Choice) {
        let id = u64::try_from(own).unwrap();
        let answered = (self.world.answers)(self.tokens[own]);
        let drafts = if answered { choice.drafts } else { 0 };
        let mut accepted = 0;
        while accepted < drafts {
            let source = choice.source.unwrap();
            let mut right = (self.world.right)(id, source, accepted, self.tokens[own]);
            if choice.width > 1 && accepted == 0 && !self.wrong_everywhere {
                right += (1.0 - right) * 0.5;
            }
            if self.chance() >= right {
                break;
            }
            accepted += 1;
        }
        self.tokens[own] += 1 + accepted;
        let round = Round {
            arm: choice.arm(),
            answered: answered && drafts > 0,
            evaluated: (accepted + 1).min(drafts),
            accepted,
            confidences: &[],
        };
        self.controller.observe_row(RequestId(id), round);
    }

    fn run(&mut self, steps: usize) -> &mut Self {
        for _ in 0..steps {
            self.step();
        }
        self
    }

    /// Tokens per second.
    fn rate(&self) -> f64 {
        self.tokens.iter().sum::<usize>() as f64 / self.seconds
    }

    /// Tokens per second where every request always takes so many drafts, for long.
    fn fixed(world: World, requests: usize, drafts: usize) -> f64 {
        let mut other = Self::new(world, requests);
        other.controller.policy = DraftPolicy::Fixed;
        other.controller.limits.drafts = drafts;
        other.run(4000).rate()
    }

    /// How often each number of drafts was chosen in the last steps, over all requests.
    fn drafts(&self, last: usize) -> BTreeMap<usize, usize> {
        let mut counts = BTreeMap::new();
        for choice in self.choices.iter().rev().take(last).flatten() {
            *counts.entry(choice.drafts).or_default() += 1;
        }
        counts
    }

    /// How often what was chosen for which reason.
    fn reasons(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for choice in self.choices.iter().flatten() {
            *counts.entry(choice.to_string()).or_default() += 1;
        }
        counts
    }

    /// The number of drafts that was chosen most often.
    fn usual(&self, last: usize) -> usize {
        self.drafts(last)
            .into_iter()
            .max_by_key(|(_, count)| *count)
            .unwrap()
            .0
    }
}

/// Little for a token, as where reading the weights takes the time.
fn cheap(_: usize, tokens: usize) -> f64 {
    1.0 + 0.05 * tokens as f64
}

/// Nearly in proportion, as where computing takes the time.
fn dear(_: usize, tokens: usize) -> f64 {
    0.2 + 0.8 * tokens as f64
}

/// Another kernel above 4 and above 8 tokens.
fn jumps(_: usize, tokens: usize) -> f64 {
    match tokens {
        0..=4 => 1.0,
        5..=8 => 1.9,
        _ => 3.5,
    }
}

fn pass(_: Source, drafts: usize) -> f64 {
    0.1 * drafts as f64
}

fn world(step: fn(usize, usize) -> f64, right: Right) -> World {
    World {
        step,
        draft: pass,
        right,
        answers: |_| true,
        noise: 0.1,
    }
}

#[test]
fn drafts_that_are_always_wrong_stop_and_cost_little() {
    for step in [cheap, dear, jumps] {
        let mut run = Simulation::new(world(step, |_, _, _, _| 0.0), 1);
        run.run(20);
        assert_eq!(run.usual(5), 0, "{:?}", run.drafts(20));
        run.run(4000);
        let plain = 1.0 / step(1, 1);
        assert!(run.rate() >= 0.97 * plain, "{} of {plain}", run.rate());
        assert!(
            run.choices
                .iter()
                .flatten()
                .filter(|c| c.why == Why::Trial)
                .count()
                > 8
        );
        // Settled, it is as good as plain.
        let (tokens, seconds) = (run.tokens[0], run.seconds);
        run.run(2000);
        let late = (run.tokens[0] - tokens) as f64 / (run.seconds - seconds);
        assert!(late >= 0.985 * plain, "{late} of {plain}");
    }
}

#[test]
fn drafts_that_are_always_right_are_as_many_as_can_be() {
    let mut run = Simulation::new(world(cheap, |_, _, _, _| 1.0), 1);
    run.run(60);
    assert_eq!(run.usual(20), 7, "{:?}", run.drafts(20));
    run.run(2000);
    let best = 8.0 / (cheap(1, 8) + pass(Source::Head, 7));
    assert!(run.rate() >= 0.95 * best, "{} of {best}", run.rate());
    run.sources = vec![head(3)];
    assert_eq!(run.run(50).usual(20), 3);
}

#[test]
fn it_is_about_as_fast_as_the_best_fixed_number() {
    let rights: [Right; 4] = [
        |_, _, _, _| 0.9,
        |_, _, _, _| 0.7,
        |_, _, position, _| if position < 2 { 0.95 } else { 0.2 },
        |_, _, _, _| 0.3,
    ];
    let mut slow = Vec::new();
    for (step, right) in [cheap, dear, jumps]
        .iter()
        .flat_map(|step| rights.map(|right| (*step, right)))
    {
        let fixed = |drafts| Simulation::fixed(world(step, right), 1, drafts);
        let all: Vec<_> = (0..8).map(fixed).collect();
        let best = all.iter().copied().fold(0.0, f64::max);
        for seed in 1..4 {
            let mut run = Simulation::new(world(step, right), 1);
            run.random = seed;
            run.run(600);
            let (tokens, seconds) = (run.tokens[0], run.seconds);
            run.run(3000);
            let settled = (run.tokens[0] - tokens) as f64 / (run.seconds - seconds);
            if settled < 0.93 * best || run.rate() < 0.97 * all[0] {
                slow.push(format!(
                    "{seed}: {} of {all:?}, {:?}",
                    run.rate(),
                    run.reasons()
                ));
            }
        }
    }
    assert!(slow.is_empty(), "{}", slow.join("\n"));
}

#[test]
fn a_jump_of_the_costs_is_found() {
    // Four tokens cost what one does.
    let mut run = Simulation::new(world(jumps, |_, _, _, _| 0.8), 1);
    run.run(600);
    assert_eq!(run.usual(200), 3, "{:?}", run.drafts(200));
    let sure = Simulation::new(world(jumps, |_, _, _, _| 1.0), 1)
        .run(600)
        .usual(200);
    assert!(sure == 7 || sure == 3, "{sure}");
}

#[test]
fn what_becomes_right_is_found_again_and_what_becomes_wrong_is_left() {
    let changes = |_, _, _, tokens| f64::from(u8::from((3000..9000).contains(&tokens)));
    let mut run = Simulation::new(world(cheap, changes), 1);
    while run.tokens[0] < 3000 {
        run.step();
    }
    assert_eq!(run.usual(100), 0);
    while run.tokens[0] < 3900 {
        run.step();
    }
    assert_eq!(run.usual(20), 7, "{:?}", run.drafts(50));
    while run.tokens[0] < 9000 {
        run.step();
    }
    run.run(40);
    assert_eq!(run.usual(20), 0, "{:?}", run.drafts(20));
}

#[test]
fn each_request_of_a_batch_drafts_what_is_worth_it() {
    let right = |id, _, _, _| if id % 2 == 0 { 0.95 } else { 0.02 };
    let step = |_, tokens: usize| 0.5 + 0.1 * tokens as f64;
    let mut run = Simulation::new(world(step, right), 8);
    run.run(800);
    let mean = |own: usize| {
        let drafts = run
            .choices
            .iter()
            .rev()
            .take(300)
            .map(|choices| choices[own].drafts);
        drafts.sum::<usize>() as f64 / 300.0
    };
    for own in 0..8 {
        let drafts = mean(own);
        assert!(
            if own % 2 == 0 {
                drafts > 1.5
            } else {
                drafts < 0.3
            },
            "{own}: {drafts}"
        );
    }
    let plain = 8.0 / step(8, 8);
    assert!(run.rate() > plain, "{} of {plain}", run.rate());
}

#[test]
fn a_full_batch_drafts_less() {
    let usual = |requests| {
        let mut run = Simulation::new(world(dear, |_, _, _, _| 0.9), requests);
        run.world.step = |_, tokens: usize| {
            if tokens <= 8 {
                1.0
            } else {
                tokens as f64 / 8.0
            }
        };
        run.run(800).usual(300)
    };
    assert!(usual(1) >= 4, "{}", usual(1));
    assert!(usual(8) <= 1, "{}", usual(8));
}

#[test]
fn the_choice_does_not_flap() {
    // Any number of drafts is about as good as any other.
    let right = |_, _, _, _| 0.8;
    let mut run = Simulation::new(world(dear, right), 1);
    run.world.noise = 0.3;
    run.world.draft = |_, _| 0.0;
    run.run(2000);
    let chosen = run
        .choices
        .iter()
        .flatten()
        .skip(200)
        .filter(|c| c.why == Why::Fastest);
    let chosen: Vec<_> = chosen.map(|choice| choice.drafts).collect();
    let changes = chosen.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(changes < chosen.len() / 40, "{changes} in {}", chosen.len());
}

#[test]
fn the_better_source_is_taken() {
    let right = |_, source, _, _| if source == Source::Lookup { 0.85 } else { 0.6 };
    let mut run = Simulation::new(world(cheap, right), 1);
    run.world.draft = |source, drafts| {
        if source == Source::Head {
            0.1 * drafts as f64
        } else {
            0.001
        }
    };
    let lookup = Available {
        source: Source::Lookup,
        ..head(7)
    };
    run.sources = vec![head(7), lookup];
    run.run(1000);
    let of = |source| {
        let last = run.choices.iter().rev().take(300).flatten();
        last.filter(|choice| choice.source == Some(source)).count()
    };
    assert!(
        of(Source::Lookup) > 250,
        "{} and {}",
        of(Source::Lookup),
        of(Source::Head)
    );
    run.controller.disable(Source::Lookup);
    run.run(100);
    assert!(
        run.choices
            .iter()
            .rev()
            .take(100)
            .flatten()
            .all(|c| c.source != Some(Source::Lookup))
    );
    assert!(run.usual(50) > 0);
}

#[test]
fn more_rows_are_taken_where_they_are_nearly_free() {
    let wide = |step| {
        let mut run = Simulation::new(world(step, |_, _, _, _| 0.5), 1);
        run.controller.limits.width = 2;
        run.sources = vec![Available {
            width: 2,
            ..head(2)
        }];
        run.run(1000);
        let last = run.choices.iter().rev().take(300).flatten();
        last.filter(|choice| choice.width == 2).count()
    };
    assert!(wide(|_, tokens| 1.0 + 0.001 * tokens as f64) > 250);
    assert!(wide(dear) < 20);
}

#[test]
fn a_fixed_policy_is_fixed() {
    let mut run = Simulation::new(world(cheap, |_, _, _, _| 0.0), 2);
    run.controller.policy = DraftPolicy::Fixed;
    run.controller.limits.drafts = 3;
    run.run(100);
    assert_eq!(run.drafts(100), BTreeMap::from([(3, 200)]));
    assert!(run.controller.worth_another(Source::Head, 0.0, 5));
    let none = Decoding {
        request: RequestId(9),
        context: 1,
        room: 0,
        sources: vec![head(7)],
    };
    let bare = Decoding {
        room: 5,
        sources: vec![head(0)],
        ..none.clone()
    };
    let tight = Decoding {
        room: 2,
        ..none.clone()
    };
    let found = run.controller.choose(&[none, bare, tight]);
    assert_eq!(
        found.iter().map(|choice| choice.drafts).collect::<Vec<_>>(),
        [0, 0, 2]
    );
    assert_eq!((found[0].why, found[1].why), (Why::NoRoom, Why::NoDrafts));
}

#[test]
fn the_limits_of_a_step_hold() {
    let mut run = Simulation::new(world(cheap, |_, _, _, _| 1.0), 4);
    run.controller.limits = StepLimits {
        drafts: 5,
        width: 2,
        rows: 5,
        tokens: 13,
    };
    run.sources = vec![Available {
        width: 2,
        ..head(7)
    }];
    run.run(500);
    for choices in &run.choices {
        let tokens: usize = choices
            .iter()
            .map(|choice| Pick::tokens(choice.pick()))
            .sum();
        let rows: usize = choices.iter().map(|choice| choice.width).sum();
        assert!(tokens <= 13 && rows <= 5, "{choices:?}");
        assert!(choices.iter().all(|choice| choice.drafts <= 5));
    }
    assert!(
        run.choices
            .iter()
            .rev()
            .take(9)
            .flatten()
            .any(|choice| choice.drafts > 1)
    );
}

#[test]
fn short_requests_find_a_drafter_that_became_right() {
    let mut run = Simulation::new(world(cheap, |_, _, _, _| 0.0), 1);
    let mut drafted = [0, 0];
    for request in 0..120 {
        if request == 40 {
            run.world.right = |_, _, _, _| 1.0;
        }
        for _ in 0..30 {
            run.step();
            drafted[usize::from(request >= 40)] += run.choices.last().unwrap()[0].drafts;
        }
        run.controller.forget(RequestId(0));
        run.tokens = vec![0];
    }
    assert!(drafted[0] < 100, "{drafted:?}");
    assert!(drafted[1] > 10_000, "{drafted:?}");
    assert!(run.controller.requests.is_empty());
}

#[test]
fn exploring_costs_little() {
    let mut run = Simulation::new(world(cheap, |_, _, _, _| 0.9), 1);
    run.run(5000);
    let odd = |choice: &&Choice| !matches!(choice.why, Why::Fastest | Why::CostProbe);
    let explored = run.choices.iter().flatten().filter(odd).count();
    assert!(explored < 100 && explored > 20, "{explored}");
    let again = |choice: &&Choice| choice.why == Why::CostProbe;
    let again = run.choices.iter().flatten().filter(again).count();
    assert!(again > 150 && again < 5000 / 20, "{again}");
    // What was measured is there to be kept.
    let plain = run.controller.costs().steps(1, 100).unwrap();
    assert!((plain.at(1) - cheap(1, 1)).abs() < 0.05);
}

#[test]
fn one_more_draft_is_made_while_it_is_worth_its_place() {
    let mut run = Simulation::new(world(cheap, |_, _, _, _| 0.8), 1);
    run.run(500);
    let worth = |survival, depth| run.controller.worth_another(Source::Head, survival, depth);
    assert!(worth(0.95, 1) && !worth(0.02, 1));
    for depth in 0..7 {
        let least = (0..100).find(|percent| worth(*percent as f32 / 100.0, depth));
        // Tokens per second times what a pass and a row take.
        let costs: f64 = 0.15 * run.controller.present.as_ref().unwrap().goodput;
        let found = f64::from(least.unwrap()) / 100.0;
        assert!((found - costs).abs() < 0.15, "{found} {costs}");
    }
}

#[test]
fn what_a_choice_is_reads_well() {
    let arm = Arm {
        source: Source::HeadThenLookup,
        width: 2,
    };
    let wide = Choice::of(Pick { arm, drafts: 4 }, Why::Fastest);
    assert_eq!(
        wide.to_string(),
        "mtp, then ngram, 4 drafts in 2 rows: fastest"
    );
    assert_eq!(
        Choice::plain(Why::NotWorth).to_string(),
        "plain: drafts cost more than they give"
    );
}

#[test]
fn a_confidence_is_worth_what_it_turned_out_to_be() {
    let mut run = Simulation::new(world(cheap, |_, _, _, _| 0.5), 1);
    for _ in 0..60 {
        let round = |accepted, confidences| Round {
            arm: Some(Arm {
                source: Source::Head,
                width: 1,
            }),
            answered: true,
            evaluated: 1,
            accepted,
            confidences,
        };
        run.controller.observe_row(RequestId(0), round(1, &[0.9]));
        run.controller.observe_row(RequestId(0), round(0, &[0.5]));
    }
    let chance = |confidences: &[f32]| run.controller.survival(Source::Head, confidences);
    assert!(chance(&[0.9, 0.95]) > 0.8 && chance(&[0.5]) < 0.1);
    assert!((chance(&[0.25]) - 0.25).abs() < 1e-6 && chance(&[]) == 1.0);
}
