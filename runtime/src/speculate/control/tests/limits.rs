//! What must not be drafted: by sources without drafts, by trees that are never right or have no rows, by costs that are wrong.

use super::*;

/// A source that searches for long and finds nothing is asked now and then, and again more often when it finds something.
#[test]
fn a_source_without_drafts_is_asked_as_often_as_it_pays() {
    for cost in [0.5, 10.0] {
        let mut run = Simulation::new(world(cheap, |_, _, _, _| 1.0), 1);
        run.world.answers = |tokens| tokens > 6000;
        run.world.draft = if cost > 1.0 { |_, _| 10.0 } else { |_, _| 0.5 };
        run.run(500);
        let (tokens, seconds) = (run.tokens[0], run.seconds);
        run.run(3000);
        let asked = |choices: &[Vec<Choice>]| {
            let asks = choices.iter().flatten().filter(|c| c.source.is_some());
            asks.count()
        };
        let late = asked(&run.choices[500..]);
        assert!((3..60).contains(&late), "{late}: {:?}", run.reasons());
        let rate = (run.tokens[0] - tokens) as f64 / (run.seconds - seconds);
        assert!(rate >= 0.97 / cheap(1, 1), "{rate} with {cost}");
        while run.tokens[0] < 9000 {
            run.step();
        }
        let pays = cost < 1.0;
        assert_eq!(asked(&run.choices[run.choices.len() - 50..]) > 40, pays);
    }
    // One that costs next to nothing, and is right when it has something, is asked every time.
    let mut run = Simulation::new(world(cheap, |_, _, _, _| 1.0), 1);
    run.world.answers = |tokens| tokens % 5 == 0;
    run.world.draft = |_, _| 0.001;
    run.run(1000);
    let asked = run.choices[500..].iter().flatten();
    assert!(asked.filter(|c| c.source.is_some()).count() > 450);
}

/// Trees that are never right are given up like chains, at every width.
#[test]
fn trees_that_are_always_wrong_stop() {
    for source in [Source::Caller, Source::Head] {
        let mut run = Simulation::new(world(cheap, |_, _, _, _| 0.0), 1);
        run.wrong_everywhere = true;
        run.controller.limits.width = 4;
        run.sources = vec![Available {
            source,
            width: 4,
            ..head(7)
        }];
        run.run(300);
        let (tokens, seconds) = (run.tokens[0], run.seconds);
        run.run(3000);
        let rate = (run.tokens[0] - tokens) as f64 / (run.seconds - seconds);
        assert!(rate >= 0.97 / cheap(1, 1), "{rate}, {:?}", run.reasons());
    }
}

/// Where a tree has no room a chain is drafted, and one of several requests takes the rows that there are.
#[test]
fn a_tree_without_rows_gives_way_to_a_chain() {
    for (requests, rows) in [(1, 1), (4, 4), (4, 7)] {
        let step = |_, tokens: usize| 1.0 + 0.03 * tokens as f64;
        let mut run = Simulation::new(world(step, |_, _, _, _| 0.5), requests);
        run.world.draft = |_, _| 0.0;
        run.controller.limits = StepLimits {
            width: 4,
            rows,
            ..LIMITS
        };
        run.sources = vec![Available {
            width: 4,
            ..head(3)
        }];
        run.run(600);
        for choices in &run.choices[300..] {
            assert!(choices.iter().map(|c| c.width).sum::<usize>() <= rows);
        }
        for own in 0..requests {
            let drafts = run.choices[300..].iter().filter(|c| c[own].drafts > 0);
            let drafts = drafts.count();
            assert!(drafts > 250, "{own} of {requests}, {rows} rows: {drafts}");
        }
        let wide = run.choices[300..].iter().flatten().any(|c| c.width > 1);
        assert_eq!(wide, rows > requests);
    }
}

/// Costs that another process measured on a busy machine are measured again, whatever the source.
#[test]
fn costs_that_are_too_high_are_found_out() {
    for source in [Source::Lookup, Source::Caller, Source::Head] {
        let mut table = CostTable::default();
        for tokens in 1..9 {
            let slow = if tokens > 2 { 4.0 } else { 1.0 };
            let shape = StepShape {
                requests: 1,
                tokens,
                context: 100,
            };
            for _ in 0..20 {
                table.observe_step(shape, slow * cheap(1, tokens));
            }
        }
        for reload in [true, false] {
            let text = serde_json::to_string(&table).unwrap();
            let loaded = serde_json::from_str(&text).unwrap();
            let known = if reload { loaded } else { table.clone() };
            let mut run = Simulation::new(world(cheap, |_, _, _, _| 0.9), 1);
            run.controller = Controller::new(DraftPolicy::Adaptive, LIMITS, known);
            run.world.draft = |_, _| 0.001;
            run.sources = vec![Available { source, ..head(7) }];
            run.run(40);
            assert!(run.usual(20) <= 1, "{:?}", run.drafts(20));
            run.run(if reload { 400 } else { 4000 });
            let usual = run.usual(100);
            assert!(usual >= 5, "{source}, {reload}: {:?}", run.drafts(100));
        }
    }
}

/// Whether a source is any good is found out even where its drafts do not pay, and no longer than that takes.
#[test]
fn what_is_not_proven_is_compared() {
    let mut run = Simulation::new(world(cheap, |_, _, _, _| 0.0), 1);
    let unproven = Available {
        unproven: true,
        ..head(7)
    };
    run.sources = vec![unproven];
    run.run(50);
    let of = |choices: &[Vec<Choice>]| choices.iter().filter(|c| c[0].drafts > 0).count();
    assert!(of(&run.choices) > 40, "{:?}", run.reasons());
    assert!(run.choices[40..].iter().all(|c| c[0].why == Why::Proof));
    run.sources = vec![head(7)];
    run.run(50);
    assert_eq!(of(&run.choices[50..]), 0, "{:?}", run.reasons());
}
