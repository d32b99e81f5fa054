//! Best-first construction of a tree under a budget of nodes.

use super::tree::DraftTree;
use std::cmp::Ordering;

/// A tree that grows where its paths are likeliest. Children of chosen nodes are offered with their probabilities; the
/// nodes that end up in the tree are the `budget` ones with the highest product of probabilities along their path, as if
/// every node had been expanded: for any drafter whose probabilities are right, no tree of as many nodes is accepted
/// further on average.
#[derive(Clone, Debug)]
pub(crate) struct Growth {
    budget: usize,
    depth: usize,
    width: usize,
    nodes: Vec<Grown>,
    rooted: bool,
}

#[derive(Clone, Copy, Debug)]
struct Grown {
    parent: Option<usize>,
    token: u32,
    depth: usize,
    score: f64,
    expanded: bool,
}

/// A node whose children are worth asking for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GrowthNode {
    /// Its number, to be given to [`Growth::offer`] and [`Growth::path`].
    pub(crate) index: usize,
    /// Its token.
    pub(crate) token: u32,
    /// Its parent; `None` below the last known token.
    pub(crate) parent: Option<usize>,
    /// Tokens from the root to it, its own included.
    pub(crate) depth: usize,
    /// Logarithm of the product of the probabilities along its path.
    pub(crate) log_probability: f64,
}

impl Growth {
    /// Nothing yet: at most `budget` nodes, none deeper than `depth`, at most `width` children of one node.
    pub(crate) fn new(budget: usize, depth: usize, width: usize) -> Self {
        Self {
            budget,
            depth,
            width,
            nodes: Vec::new(),
            rooted: false,
        }
    }

    /// Children of `parent` (`None`: of the last known token), each a token and the logarithm of its probability; the
    /// `width` best are considered, of equal ones those given first. What is no probability is passed over, above 1 counts
    /// as 1, and of a repeated token the best is taken. A node takes children once, and only above the last depth.
    pub(crate) fn offer(&mut self, parent: Option<usize>, candidates: &[(u32, f32)]) {
        let above = match parent {
            None if !self.rooted => (0, 0.0),
            Some(index) => match self.nodes.get_mut(index).filter(|node| !node.expanded) {
                Some(node) => {
                    node.expanded = true;
                    (node.depth, node.score)
                }
                None => return,
            },
            None => return,
        };
        self.rooted = true;
        if above.0 >= self.depth {
            return;
        }
        let first = self.nodes.len();
        for (token, log_probability) in best_candidates(candidates) {
            let new = self.nodes.len() - first;
            if new == self.width {
                return;
            }
            if self
                .nodes
                .iter()
                .skip(first)
                .all(|node| node.token != token)
            {
                self.nodes.push(Grown {
                    parent,
                    token,
                    depth: above.0 + 1,
                    score: above.1 + f64::from(log_probability.min(0.0)),
                    expanded: false,
                });
            }
        }
    }

    /// Up to `at_most` nodes whose children should be offered next, best first: not expanded yet, above the last depth, and
    /// with room for a child among the best. None left means that the tree is finished.
    pub(crate) fn to_expand(&self, at_most: usize) -> Vec<GrowthNode> {
        // A child comes after its parent, so the last of the best has no room for one.
        let roomy = self.best().into_iter().take(self.budget.saturating_sub(1));
        let open = roomy.filter_map(|index| Some((index, self.nodes.get(index)?)));
        let open = open.filter(|(_, node)| !node.expanded && node.depth < self.depth);
        let open = open.map(|(index, node)| GrowthNode {
            index,
            token: node.token,
            parent: node.parent,
            depth: node.depth,
            log_probability: node.score,
        });
        open.take(at_most).collect()
    }

    /// The tokens from the root to a node, its own last.
    pub(crate) fn path(&self, node: usize) -> Vec<u32> {
        let up = |node: &&Grown| self.nodes.get(node.parent?);
        let mut path: Vec<_> = std::iter::successors(self.nodes.get(node), up)
            .map(|node| node.token)
            .collect();
        path.reverse();
        path
    }

    /// The tree, its nodes in falling order of their path's probability: a cut keeps the best, and row 0 takes the best
    /// child of every node.
    pub(crate) fn finish(&self) -> DraftTree {
        let mut tree = DraftTree::default();
        let mut placed = vec![None; self.nodes.len()];
        for index in self.best().into_iter().take(self.budget) {
            let Some(node) = self.nodes.get(index) else {
                continue;
            };
            let parent = node
                .parent
                .map(|parent| placed.get(parent).copied().flatten());
            // A parent is never worse than its child, and was offered before it.
            if let (None | Some(Some(_)), Some(place)) = (parent, placed.get_mut(index)) {
                *place = tree.push(parent.flatten(), node.token).ok();
            }
        }
        tree
    }

    /// All nodes, best first; of equal ones those offered first.
    fn best(&self) -> Vec<usize> {
        let score = |index: &usize| {
            self.nodes
                .get(*index)
                .map_or(f64::NEG_INFINITY, |n| n.score)
        };
        let mut order: Vec<_> = (0..self.nodes.len()).collect();
        order.sort_by(|a, b| score(b).total_cmp(&score(a)));
        order
    }
}

/// Candidates that can come true, best first.
fn best_candidates(candidates: &[(u32, f32)]) -> Vec<(u32, f32)> {
    let possible = |(_, log): &&(u32, f32)| *log > f32::NEG_INFINITY;
    let mut sorted: Vec<_> = candidates.iter().filter(possible).copied().collect();
    sorted.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap_or(Ordering::Equal));
    sorted
}

#[cfg(test)]
mod tests {
    use super::super::tree::tests::paths;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Children of any path, as a drafter that depends on it would score them.
    type Scores = BTreeMap<Vec<u32>, Vec<(u32, f32)>>;

    fn grow(scores: &Scores, limits: [usize; 3], at_once: usize) -> DraftTree {
        let [budget, depth, width] = limits;
        let mut growth = Growth::new(budget, depth, width);
        growth.offer(None, &scores[&vec![]]);
        loop {
            let open = growth.to_expand(at_once);
            if open.is_empty() {
                return growth.finish();
            }
            for node in open {
                let path = growth.path(node.index);
                assert_eq!((path.len(), path.last()), (node.depth, Some(&node.token)));
                growth.offer(Some(node.index), &scores[&path]);
            }
        }
    }

    /// Every path within depth and width with its score, best first.
    fn all(scores: &Scores, [budget, depth, width]: [usize; 3]) -> Vec<(Vec<u32>, f64)> {
        let mut open = vec![(vec![], 0.0)];
        let mut found = Vec::new();
        while let Some((path, score)) = open.pop() {
            let children: &[_] = if path.len() < depth {
                &scores[&path]
            } else {
                &[]
            };
            let mut children = children.to_vec();
            children.sort_by(|a, b| b.1.total_cmp(&a.1));
            for (token, log) in children.into_iter().take(width) {
                let below = [&path[..], &[token]].concat();
                found.push((below.clone(), score + f64::from(log)));
                open.push((below, score + f64::from(log)));
            }
        }
        found.sort_by(|a, b| b.1.total_cmp(&a.1));
        found.truncate(budget);
        found
    }

    fn scores() -> impl Strategy<Value = Scores> {
        // 40 paths of up to 3 tokens from 3, each with a score of its own: no two sums are equal.
        proptest::collection::vec(0.01_f32..3.0, 120).prop_map(|values| {
            let mut values = values.into_iter();
            let mut scores = Scores::new();
            let mut open = vec![vec![]];
            while let Some(path) = open.pop() {
                let children: Vec<(u32, f32)> = (0..3)
                    .zip(values.by_ref())
                    .map(|(token, value)| (token, -value))
                    .collect();
                if path.len() < 3 {
                    open.extend((0..3).map(|token| [&path[..], &[token]].concat()));
                }
                scores.insert(path, children);
            }
            scores
        })
    }

    proptest! {
        #[test]
        fn the_best_nodes_are_in_the_tree(
            scores in scores(), budget in 0_usize..20, depth in 0_usize..4, width in 0_usize..4,
            at_once in 1_usize..5,
        ) {
            let limits = [budget, depth, width];
            let found = paths(&grow(&scores, limits, at_once));
            let expected: Vec<_> = all(&scores, limits).into_iter().map(|(path, _)| path).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn no_more_is_asked_for_than_can_enter() {
        let mut growth = Growth::new(3, 9, 2);
        growth.offer(None, &[(1, -0.1), (2, -0.2)]);
        assert_eq!(growth.to_expand(9).len(), 2);
        growth.offer(Some(0), &[(3, -0.05)]);
        // Three nodes are as good as node 1 or better, so nothing below node 1 has room.
        let open: Vec<_> = growth.to_expand(9).iter().map(|node| node.index).collect();
        assert_eq!(open, [2]);
        growth.offer(Some(2), &[]);
        assert!(growth.to_expand(9).is_empty());
        assert_eq!(paths(&growth.finish()), [vec![1], vec![1, 3], vec![2]]);
    }

    #[test]
    fn what_is_no_probability_is_passed_over() {
        let mut growth = Growth::new(8, 2, 3);
        let odd = [
            (1, f32::NAN),
            (2, f32::NEG_INFINITY),
            (3, 5.0),
            (4, -1.0),
            (4, -2.0),
            (5, -3.0),
        ];
        growth.offer(None, &odd);
        growth.offer(None, &[(9, 0.0)]);
        growth.offer(Some(99), &[(9, 0.0)]);
        assert_eq!(paths(&growth.finish()), [[3], [4], [5]]);
        assert!(growth.to_expand(1)[0].log_probability == 0.0);
        growth.offer(Some(0), &[(6, -1.0)]);
        growth.offer(Some(0), &[(7, -1.0)]);
        assert_eq!(growth.to_expand(9).len(), 2, "depth 2 is the last");
        assert_eq!(growth.finish().len(), 4);
    }
}
