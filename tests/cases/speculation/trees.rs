//! Trees never change the text either, and leave the state of their winning path.

use super::committed::{compare, run, twins};
use super::equality::{Case, Tally, cases};
use super::{BOTH, MOST, engine, engine_of, mix};
use pawl::{DraftPolicy, DraftSource, DraftTree, Engine, EngineOptions, Speculation};
use pawl_builder::CheckpointOption;
use pawl_tests::export::Export;
use pawl_tests::steps::Recorder;
use std::error::Error;

/// Rows of a step.
const ROWS: usize = 12;
/// Most nodes of a tree.
const NODES: usize = 16;

fn options(mode: Speculation) -> EngineOptions {
    EngineOptions::default()
        .draft_policy(DraftPolicy::Fixed)
        .speculation(mode)
}

/// Trees that know the text: a path that agrees with it for a while, with strangers before, beside and below it, so that
/// the winner may be any row. The seed and the tokens so far decide everything.
pub(super) struct KnownText {
    pub(super) prompt: usize,
    pub(super) text: Vec<u32>,
    pub(super) seed: usize,
}

impl DraftSource for KnownText {
    fn propose(&self, tokens: &[u32], most: usize) -> Vec<u32> {
        let known = self.text.iter().skip(tokens.len() - self.prompt);
        known.take(most).copied().collect()
    }

    fn propose_tree(
        &self,
        tokens: &[u32],
        most: usize,
    ) -> Result<DraftTree, Box<dyn Error + Send + Sync>> {
        let known = self.propose(tokens, most);
        let draw = |n: usize| mix(self.seed * 7919 + tokens.len() * 131 + n);
        let right = draw(0) % (known.len() + 1);
        let mut tree = DraftTree::default();
        let mut at = None;
        for (depth, token) in known.iter().take(right).enumerate() {
            let stranger = token ^ 1;
            // A stranger first makes it the spine, and the text a branch.
            let order = draw(10 + depth) % 3;
            if order == 0 {
                let first = tree.push(at, stranger)?;
                tree.push(Some(first), *token)?;
            }
            let next = tree.push(at, *token)?;
            if order == 1 {
                tree.push(at, stranger)?;
            }
            at = Some(next);
        }
        if let Some(token) = known.get(right) {
            tree.push(at, token ^ 1)?;
            tree.push(at, token ^ 2)?;
        }
        Ok(tree)
    }
}

fn supplied(case: &Case, seed: usize) -> pawl::Request {
    case.plain().drafts(KnownText {
        prompt: case.prompt.len(),
        text: case.tokens.clone(),
        seed,
    })
}

/// Requests that run together, with the engine's own trees and with trees that know their text.
fn together(what: &str, on: &Engine, (cases, seed): (&[Case], usize), tally: &mut Tally) {
    let own = on.generate_all(cases.iter().map(Case::plain)).unwrap();
    let known = cases.iter().map(|case| supplied(case, seed));
    let known = on.generate_all(known).unwrap();
    for (case, found) in cases.iter().zip(own).chain(cases.iter().zip(known)) {
        case.compare(what, &found.tokens, tally);
    }
}

/// The engine's own trees of every size, and trees of the caller, alone and in batches.
fn check(name: &str, forms: &[CheckpointOption]) {
    for form in forms {
        let export = Export::of(name, *form);
        let cases = cases(name, &export);
        let mut tally = Tally::default();
        let mut branched = 0;
        let batches = [8, 1, 3, 2, 5].into_iter().cycle();
        for (nodes, batch) in (1..=NODES).zip(batches) {
            let modes = [Speculation::Tree, Speculation::Auto];
            for mode in modes.into_iter().take(1 + usize::from(nodes % 8 == 0)) {
                let what = format!("{name}, {form:?}, {mode}, {nodes} nodes, batch {batch}");
                let options = options(mode).tree_nodes(nodes).prefill_chunk(33);
                // Rows for branches beside those of the requests that run.
                let on = engine_of(&export, ROWS, &options);
                for (index, chunk) in cases.chunks(batch).enumerate() {
                    together(&what, &on, (chunk, index + nodes), &mut tally);
                }
                let stats = on.speculation_stats();
                assert!(stats.accepted > 0, "{what}: {stats:?}");
                let grows = mode == Speculation::Tree && nodes > 2;
                let branches = stats.branched > 20 && stats.branch_wins > 0;
                assert!(!grows || branches, "{what}: {stats:?}");
                branched += stats.branched;
            }
        }
        let (agree, all) = tally.counts();
        println!(
            "{name}, {form:?}: {agree} of {all} tokens agree, {branched} rounds with branches"
        );
        assert!(
            agree * 100 >= all * 99,
            "{name}, {form:?}: excuses are exceptions"
        );
    }
}

#[test]
fn a_head_grows_trees() {
    check("qwen3_5-odd", &BOTH);
}

#[test]
fn lookups_grow_trees() {
    check("lfm2-odd", &BOTH[..1]);
}

#[test]
fn the_shipped_checkpoint() {
    check("tiny-python", &BOTH[1..]);
}

#[test]
fn attention_only() {
    check("qwen3-odd", &[CheckpointOption::None]);
}

/// After every step, fixed state and cache are those of decoding one by one, whichever row won.
fn winners_leave_their_state(name: &str) {
    for form in BOTH {
        let export = Export::of(name, form);
        let twins = twins(name, &export);
        let (mut worst, mut branches, mut rows) = (0.0_f32, 0, 0);
        for script in 0..4 {
            let recorder = Recorder::with_state();
            let options = options(Speculation::Tree)
                .max_drafts(MOST)
                .tree_nodes(NODES)
                .prefill_chunk(super::committed::CHUNK)
                .observe_steps(recorder.clone());
            let engine = engine(&export, &options);
            let asked = twins.iter().enumerate().map(|(p, twin)| {
                twin.request.clone().drafts(KnownText {
                    prompt: twin.prompt,
                    text: twin.tokens.clone(),
                    seed: script * 8 + p,
                })
            });
            let found = run(&engine, &recorder, asked);
            for (p, (twin, (tokens, of_request))) in twins.iter().zip(found).enumerate() {
                assert_eq!(tokens, twin.tokens);
                for row in of_request {
                    let (kept, past) = (row.kept, row.past);
                    let what = format!("{name}, {form:?}, prompt {p}: {kept} kept at {past}");
                    worst = worst.max(compare(&what, &row, twin));
                    rows += 1;
                }
            }
            branches += engine.speculation_stats().branch_wins;
        }
        println!(
            "{name}, {form:?}: {rows} rows differ by at most {worst:e}, {branches} branches won"
        );
        assert!(branches > 20, "{branches} branches won");
    }
}

#[test]
fn winners_leave_their_state_in_a_gated_delta_model() {
    winners_leave_their_state("qwen3_5-odd");
}

#[test]
fn winners_leave_their_state_in_a_convolution_model() {
    winners_leave_their_state("lfm2-odd");
}
