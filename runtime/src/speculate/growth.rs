//! Best-first construction of a tree under a budget of nodes.

use super::tree::DraftTree;
use std::cmp::Ordering;

/// A tree that grows where its paths are likeliest. Children of chosen nodes are offered with their probabilities; the
/// nodes that end up in the tree are the `nodes` ones (see [`TreeLimits`]) with the highest product of probabilities along their path, as if
/// every node had been expanded: for any drafter whose probabilities are right, no tree of as many nodes is accepted
/// further on average. Rows are bounded, too: a node that would need one more than there may be is passed over.
#[derive(Clone, Debug)]
pub(crate) struct Growth {
    limits: TreeLimits,
    nodes: Vec<Grown>,
    rooted: bool,
}

/// Bounds of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeLimits {
    /// Nodes.
    pub(crate) nodes: usize,
    /// Nodes along one path.
    pub(crate) depth: usize,
    /// Rows: paths from the root to a leaf. No node has more children.
    pub(crate) rows: usize,
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
    /// Nothing yet.
    pub(crate) fn new(limits: TreeLimits) -> Self {
        Self {
            limits,
            nodes: Vec::new(),
            rooted: false,
        }
    }

    /// Children of `parent` (`None`: of the last known token), each a token and the logarithm of its probability; the
    /// best are considered, as many as there may be rows, of equal ones those given first. What is no probability is passed over, above 1 counts
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
        if above.0 >= self.limits.depth {
            return;
        }
        let first = self.nodes.len();
        for (token, log_probability) in best_candidates(candidates) {
            let new = self.nodes.len() - first;
            if new == self.limits.rows {
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
        let roomy = self.best(self.limits.nodes.saturating_sub(1)).into_iter();
        let open = roomy.filter_map(|index| Some((index, self.nodes.get(index)?)));
        let open = open.filter(|(_, node)| !node.expanded && node.depth < self.limits.depth);
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
        let nodes = self.path_nodes(node).into_iter();
        nodes
            .filter_map(|node| Some(self.nodes.get(node)?.token))
            .collect()
    }

    /// The numbers of the nodes from the root to a node, its own last.
    pub(crate) fn path_nodes(&self, node: usize) -> Vec<usize> {
        let known = (node < self.nodes.len()).then_some(node);
        let up = |node: &usize| self.nodes.get(*node)?.parent;
        let mut path: Vec<_> = std::iter::successors(known, up).collect();
        path.reverse();
        path
    }

    /// The tree, its nodes in falling order of their path's probability: a cut keeps the best, and row 0 takes the best
    /// child of every node.
    pub(crate) fn finish(&self) -> DraftTree {
        let mut tree = DraftTree::default();
        let mut placed = vec![None; self.nodes.len()];
        for index in self.best(self.limits.nodes) {
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

    /// Up to `count` nodes of the tree, best first; of equal ones those offered first.
    fn best(&self, count: usize) -> Vec<usize> {
        let score = |index: &usize| {
            self.nodes
                .get(*index)
                .map_or(f64::NEG_INFINITY, |n| n.score)
        };
        let mut order: Vec<_> = (0..self.nodes.len()).collect();
        order.sort_by(|a, b| score(b).total_cmp(&score(a)));
        self.within_width(order, count)
    }
}

impl Growth {
    /// The first `count` nodes of an order that fit the rows. The first child of a node goes on with its row, every other
    /// one begins a row.
    fn within_width(&self, order: Vec<usize>, count: usize) -> Vec<usize> {
        let (mut chosen, mut rows) = (Vec::new(), 0);
        let (mut is_chosen, mut has_child) =
            (vec![false; self.nodes.len()], vec![false; self.nodes.len()]);
        for index in order {
            let Some(node) = self.nodes.get(index) else {
                continue;
            };
            let of_parent = |of: &[bool]| {
                node.parent
                    .is_none_or(|parent| of.get(parent) == Some(&true))
            };
            let begins = node.parent.is_none() || of_parent(&has_child);
            if chosen.len() == count || !of_parent(&is_chosen) || begins && rows == self.limits.rows
            {
                continue;
            }
            rows += usize::from(begins);
            chosen.push(index);
            let marks = [(&mut is_chosen, Some(index)), (&mut has_child, node.parent)];
            for (of, at) in marks {
                if let Some(mark) = at.and_then(|at| of.get_mut(at)) {
                    *mark = true;
                }
            }
        }
        chosen
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

    fn limited(nodes: usize, depth: usize, rows: usize) -> Growth {
        Growth::new(TreeLimits { nodes, depth, rows })
    }

    fn grow(scores: &Scores, limits: [usize; 3], at_once: usize) -> DraftTree {
        let [nodes, depth, rows] = limits;
        let mut growth = Growth::new(TreeLimits { nodes, depth, rows });
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
        within(found, budget, width)
    }

    /// The first ones whose rows fit, each with all its ancestors.
    fn within(sorted: Vec<(Vec<u32>, f64)>, budget: usize, rows: usize) -> Vec<(Vec<u32>, f64)> {
        let mut kept: Vec<(Vec<u32>, f64)> = Vec::new();
        for (path, score) in sorted {
            let mut with = kept.clone();
            with.push((path.clone(), score));
            let held =
                |path: &[u32]| path.is_empty() || with.iter().any(|(other, _)| other == path);
            let above = &path[..path.len() - 1];
            let leaf = |(path, _): &&(Vec<u32>, f64)| {
                !with
                    .iter()
                    .any(|(other, _)| other.len() > path.len() && other.starts_with(path))
            };
            if kept.len() < budget && held(above) && with.iter().filter(leaf).count() <= rows {
                kept = with;
            }
        }
        kept
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
            scores in scores(), budget in 0_usize..20, depth in 0_usize..4, width in 0_usize..9,
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
        let mut growth = limited(3, 9, 2);
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
        let mut growth = limited(8, 2, 4);
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
        let mut narrow = limited(8, 2, 1);
        narrow.offer(None, &[(1, -1.0), (2, -2.0)]);
        assert_eq!(narrow.to_expand(9).len(), 1);
    }
}
