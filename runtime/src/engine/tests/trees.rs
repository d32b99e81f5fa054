//! Trees of drafts through the whole engine: every node in turn ends the winning path, and nothing of the losers stays.

use super::stand_in::{Bench, Law};
use crate::engine::EngineOptions;
use crate::request::Request;
use crate::sample::SamplingParams;
use crate::speculate::{DraftPolicy, DraftSource, DraftTree, Speculation};
use crate::txn::tests::fixture::Form;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const PROMPT: [u32; 3] = [1, 2, 3];
const TOKENS: usize = 60;

/// Proposes trees of one shape whose node `winner` ends the path that agrees with the text.
#[derive(Clone)]
struct Scripted {
    text: Arc<Vec<u32>>,
    /// Parent of each node.
    shape: &'static [Option<usize>],
    winner: usize,
    asked: Arc<AtomicUsize>,
}

impl Scripted {
    /// Nodes from the root to the winner.
    fn path(&self) -> Vec<usize> {
        let mut path: Vec<usize> =
            std::iter::successors(Some(self.winner), |node| self.shape[*node]).collect();
        path.reverse();
        path
    }
}

impl DraftSource for Scripted {
    fn propose(&self, _: &[u32], _: usize) -> Vec<u32> {
        unreachable!("the engine asks for trees")
    }

    fn propose_tree(
        &self,
        tokens: &[u32],
        most: usize,
    ) -> Result<DraftTree, Box<dyn Error + Send + Sync>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let done = tokens.len() - PROMPT.len();
        let path = self.path();
        if most < path.len() {
            return Ok(DraftTree::default());
        }
        let mut tree = DraftTree::default();
        let mut depths: Vec<usize> = Vec::new();
        for (node, parent) in self.shape.iter().enumerate() {
            let depth = parent.map_or(0, |parent| depths[parent] + 1);
            depths.push(depth);
            let right = self.text.get(done + depth).copied().unwrap_or(0);
            // Siblings differ, and all but those on the path are wrong.
            let token = if path.contains(&node) {
                right
            } else {
                (right + 1 + u32::try_from(node)?) % 24
            };
            tree.push(*parent, token)?;
        }
        assert_eq!(tree.len(), self.shape.len());
        Ok(tree)
    }
}

/// A spine, branches at every depth, a branch that branches, and leaves that end early.
const SHAPES: [&[Option<usize>]; 3] = [
    &[None, Some(0), Some(1), None, Some(3), Some(0), None],
    &[None, None, None, Some(2), Some(3), Some(3)],
    &[
        None,
        Some(0),
        Some(1),
        Some(2),
        Some(1),
        Some(4),
        Some(0),
        None,
        Some(7),
    ],
];

fn run(form: Form, shape: &'static [Option<usize>], params: &SamplingParams) {
    let text = Arc::new(Law::Everything.decode(&PROMPT, params, TOKENS));
    for winner in 0..shape.len() {
        let asked = Arc::new(AtomicUsize::new(0));
        let source = Scripted {
            text: Arc::clone(&text),
            shape,
            winner,
            asked: Arc::clone(&asked),
        };
        let depth = source.path().len();
        let options = EngineOptions::default()
            .speculation(Speculation::Tree)
            .draft_policy(DraftPolicy::Fixed)
            .tree_nodes(16)
            .max_drafts(5);
        let mut bench = Bench::new(form, &options);
        let free = bench.core.composite.free_blocks();
        let request = Request::from_ids(PROMPT).sampling(params.clone());
        let request = request.max_new_tokens(TOKENS as u64).drafts(source);
        bench.submit(&request);
        while !bench.core.requests.is_empty() {
            bench.core.step().unwrap();
            bench.compare();
        }
        assert_eq!(bench.told()[0].tokens, *text, "{form:?}, node {winner}");
        assert_eq!(bench.core.composite.free_blocks(), free, "node {winner}");
        let stats = &bench.core.totals;
        assert!(asked.load(Ordering::Relaxed) > 3);
        assert!(stats.branched > 3, "no branches were run: {stats:?}");
        let rounds = stats.by_accepted.get(depth).copied().unwrap_or(0);
        assert!(
            rounds >= stats.branched,
            "node {winner} was not always reached: {stats:?}"
        );
        let spine = {
            let mut tree = DraftTree::default();
            for (node, parent) in shape.iter().enumerate() {
                tree.push(*parent, u32::try_from(node).unwrap()).unwrap();
            }
            tree.spine().contains(&winner)
        };
        assert_eq!(stats.branch_wins > 0, !spine, "node {winner}: {stats:?}");
    }
}

#[test]
fn every_node_can_end_the_winning_path_with_transitions() {
    for shape in SHAPES {
        run(Form::Update(6), shape, &SamplingParams::greedy());
    }
}

#[test]
fn every_node_can_end_the_winning_path_with_states() {
    for shape in SHAPES {
        run(Form::State(6), shape, &SamplingParams::sampled(0.9).seed(8));
    }
}

/// The head grows trees of its own, and text and state are those of decoding one by one.
#[test]
fn a_head_grows_trees() {
    for (form, nodes) in [
        (Form::Update(8), 16),
        (Form::State(8), 8),
        (Form::Update(4), 3),
    ] {
        let options = EngineOptions::default()
            .speculation(Speculation::Tree)
            .draft_policy(DraftPolicy::Fixed)
            .tree_nodes(nodes);
        let mut bench = Bench::new(form, &options);
        for (prompt, params) in [
            (&[1, 2, 3][..], SamplingParams::greedy()),
            (&[9, 8, 7, 6, 5], SamplingParams::sampled(0.7).seed(2)),
        ] {
            bench.submit(
                &Request::from_ids(prompt)
                    .sampling(params)
                    .max_new_tokens(50),
            );
        }
        while !bench.core.requests.is_empty() {
            bench.core.step().unwrap();
            bench.compare();
        }
        let told = bench.told();
        assert_eq!(
            told[0].tokens,
            Law::Everything.decode(&[1, 2, 3], &SamplingParams::greedy(), 50)
        );
        let params = SamplingParams::sampled(0.7).seed(2);
        assert_eq!(
            told[1].tokens,
            Law::Everything.decode(&[9, 8, 7, 6, 5], &params, 50)
        );
        let stats = &bench.core.totals;
        assert!(stats.branched > 5 && stats.branch_wins > 0, "{stats:?}");
    }
}

/// A tree without branches is run as the chain that it is: the same steps, with the same counts.
#[test]
fn a_tree_without_branches_is_a_chain() {
    let run = |mode| {
        let options = EngineOptions::default()
            .speculation(mode)
            .draft_policy(DraftPolicy::Fixed)
            .max_drafts(3);
        let mut bench = Bench::new(Form::Update(4), &options);
        let text = Law::Everything.decode(&PROMPT, &SamplingParams::greedy(), TOKENS);
        let known = move |tokens: &[u32], most: usize| -> Vec<u32> {
            let done = tokens.len() - PROMPT.len();
            text.iter()
                .skip(done)
                .take(most)
                .map(|t| t + u32::from(done.is_multiple_of(4)))
                .collect()
        };
        bench.submit(
            &Request::from_ids(PROMPT)
                .max_new_tokens(TOKENS as u64)
                .drafts(known),
        );
        bench.drain();
        let mut stats = bench.core.totals.clone().without_times();
        // How wide a tree could have been is another matter.
        stats.policy = None;
        (stats.draft_passes, stats.held_bytes) = (0, 0);
        (bench.told().remove(0).tokens, stats)
    };
    assert_eq!(run(Speculation::Tree), run(Speculation::Ngram));
}

/// From each node the best child, which is what a chain drafts next: so a tree is never worse than the chain of its depth.
#[test]
fn the_spine_of_a_tree_is_what_a_chain_drafts() {
    for prompt in 0..12 {
        let prompt: Vec<u32> = (0..9).map(|i| (prompt * 5 + i * 7) % 24).collect();
        let drafted = |mode| {
            let options = EngineOptions::default()
                .speculation(mode)
                .draft_policy(DraftPolicy::Fixed)
                .max_drafts(4);
            let options = if mode == Speculation::Tree {
                options.tree_nodes(12)
            } else {
                options
            };
            let mut bench = Bench::new(Form::Update(5), &options);
            bench.submit(&Request::from_ids(prompt.clone()).max_new_tokens(20));
            bench.core.step().unwrap();
            bench.core.requests[0].proposal.spine()
        };
        let (tree, chain) = (drafted(Speculation::Tree), drafted(Speculation::Mtp));
        assert!(tree.len() > 1, "{tree:?}");
        assert!(chain.starts_with(&tree), "{chain:?}, {tree:?}");
    }
}
