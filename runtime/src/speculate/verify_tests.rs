//! Trees leave the distribution of what is generated as it is.

use super::{Rows, verify_tree};
use crate::sample::{Sampler, SamplingParams, Scratch};
use crate::speculate::tree::DraftTree;
use std::collections::BTreeMap;

const VOCABULARY: u32 = 4;
/// Tokens of a text.
const LENGTH: usize = 3;
const TEXTS: u64 = 12_000;

/// A step of splitmix64, so that runs repeat.
pub(in crate::speculate) fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

fn below(state: &mut u64, end: u64) -> u64 {
    random(state) % end
}

/// The target's logits after some tokens.
fn logits(before: &[u32]) -> Vec<f32> {
    let mut state = before
        .iter()
        .fold(77, |sum, token| sum * 31 + u64::from(*token) + 1);
    (0..VOCABULARY)
        .map(|_| below(&mut state, 2000) as f32 / 1000.0)
        .collect()
}

fn probabilities(before: &[u32]) -> Vec<f64> {
    let weights: Vec<_> = logits(before)
        .iter()
        .map(|logit| f64::from(*logit).exp())
        .collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

struct Text {
    sampler: Sampler,
    scratch: Scratch,
    choices: u64,
}

impl Text {
    fn new(seed: u64) -> Self {
        let params = SamplingParams::sampled(1.0).seed(seed);
        Self {
            sampler: Sampler::new(&params, 0).unwrap(),
            scratch: Scratch::default(),
            choices: seed ^ 0xABCD_EF01,
        }
    }

    fn draw(&mut self, logits: &[f32], position: usize) -> u32 {
        let position = u64::try_from(position).unwrap();
        self.sampler
            .draw(logits, position, &mut self.scratch)
            .unwrap()
            .token
    }

    /// A random tree after some tokens. Of its nodes, some are what the draw itself would give for logits that are
    /// somewhat off: drafts that depend on the noise of the position they guess.
    fn tree(&mut self, before: &[u32]) -> DraftTree {
        let mut tree = DraftTree::default();
        let mut paths = vec![before.to_vec()];
        for _ in 0..below(&mut self.choices, 9) {
            let choice = below(&mut self.choices, u64::try_from(paths.len()).unwrap());
            let parent = usize::try_from(choice).unwrap();
            let path = paths[parent].clone();
            let token = if below(&mut self.choices, 2) == 0 {
                let mut guess = logits(&path);
                guess[0] += 0.5;
                self.draw(&guess, path.len())
            } else {
                u32::try_from(below(&mut self.choices, u64::from(VOCABULARY))).unwrap()
            };
            let node = tree.push(parent.checked_sub(1), token).unwrap();
            if node + 1 == paths.len() {
                paths.push([&path[..], &[token]].concat());
            }
        }
        tree
    }

    /// One text with a way to choose the token after some tokens, shown the children that guess it.
    fn write(&mut self, mut choose: impl FnMut(&mut Self, &[u32], &[u32]) -> u32) -> Vec<u32> {
        let mut text = Vec::new();
        while text.len() < LENGTH {
            let tree = self.tree(&text);
            let nodes: Vec<_> = tree.nodes().collect();
            let take = usize::try_from(below(&mut self.choices, 4)).unwrap();
            let rows = Rows::of(&tree).take(take);
            let mut path = text.clone();
            let found = verify_tree(&tree, &rows, |at| {
                let children = nodes.iter().filter(|(parent, _)| *parent == at);
                let children: Vec<_> = children.map(|(_, token)| *token).collect();
                path.truncate(text.len() + at.map_or(0, |node| depth(&nodes, node)));
                let token = choose(self, &path, &children);
                path.push(token);
                Ok::<_, ()>(token)
            });
            text.extend(found.unwrap().tokens);
        }
        text.truncate(LENGTH);
        text
    }
}

fn depth(nodes: &[(Option<usize>, u32)], node: usize) -> usize {
    std::iter::successors(Some(node), |node| nodes[*node].0).count()
}

/// Pearson's statistic of many texts against the target, and the value that chance exceeds once in 100,000 runs.
fn compare(mut write: impl FnMut(&mut Text) -> Vec<u32>) -> (f64, f64) {
    let mut seen: BTreeMap<Vec<u32>, f64> = BTreeMap::new();
    for seed in 0..TEXTS {
        *seen.entry(write(&mut Text::new(seed))).or_default() += 1.0;
    }
    let mut statistic = 0.0;
    let mut cells = 0.0;
    let mut open = vec![(vec![], 1.0)];
    while let Some((path, probability)) = open.pop() {
        if path.len() < LENGTH {
            let next = (0..VOCABULARY).zip(probabilities(&path));
            open.extend(next.map(|(token, p)| ([&path[..], &[token]].concat(), probability * p)));
            continue;
        }
        let expected = probability * TEXTS as f64;
        assert!(
            expected > 5.0,
            "the statistic needs a few texts of each kind"
        );
        statistic += (seen.get(&path).copied().unwrap_or(0.0) - expected).powi(2) / expected;
        cells += 1.0;
    }
    // Wilson and Hilferty's approximation of the quantile.
    let freedom: f64 = cells - 1.0;
    let part = 2.0 / (9.0 * freedom);
    (
        statistic,
        freedom * (1.0 - part + 4.265 * part.sqrt()).powi(3),
    )
}

#[test]
fn the_distribution_is_the_targets() {
    let (statistic, most) =
        compare(|text| text.write(|text, path, _| text.draw(&logits(path), path.len())));
    assert!(statistic < most, "{statistic} of at most {most}");
}

#[test]
fn the_texts_are_those_without_drafts() {
    for seed in 0..500 {
        let drafted = Text::new(seed).write(|text, path, _| text.draw(&logits(path), path.len()));
        let mut plain = Vec::new();
        let mut text = Text::new(seed);
        while plain.len() < LENGTH {
            plain.push(text.draw(&logits(&plain), plain.len()));
        }
        assert_eq!(drafted, plain);
    }
}

/// A ratio test that goes wrong as such tests do: it takes guesses for draws from the uniform distribution, which only some
/// are, and draws from the target's whole distribution where it refuses one, not from what is left of it.
#[test]
fn a_preference_for_guesses_is_caught() {
    let (statistic, most) = compare(|text| {
        text.write(|text, path, children| {
            let chances = probabilities(path);
            for child in children {
                let coin = below(&mut text.choices, 1_000_000) as f64 / 1e6;
                if coin < chances[*child as usize] * f64::from(VOCABULARY) {
                    return *child;
                }
            }
            text.draw(&logits(path), path.len())
        })
    });
    assert!(statistic > most, "{statistic} should exceed {most}");
}
