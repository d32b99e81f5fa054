//! Drafts that branch.

use super::rows::Rows;

/// Guesses at the tokens that follow the last known one, as a tree: a node's children are different guesses of the token
/// after it. The default is empty.
///
/// Nodes are numbered from 0 in the order in which they were pushed, so a parent always comes before its children. Of
/// what cannot all be run, the nodes pushed first are kept: push the best guesses first.
///
/// ```
/// use pawl::DraftTree;
///
/// let mut tree = DraftTree::chain([5, 6]);
/// let other = tree.push(None, 7)?;
/// tree.push(Some(other), 8)?;
/// let nodes: Vec<_> = tree.nodes().collect();
/// assert_eq!(nodes, [(None, 5), (Some(0), 6), (None, 7), (Some(2), 8)]);
/// # Ok::<(), pawl::DraftTreeError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DraftTree {
    nodes: Vec<Node>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node {
    parent: Option<usize>,
    token: u32,
}

/// A node that cannot be pushed.
///
/// ```
/// let error = pawl::DraftTree::default().push(Some(3), 1).unwrap_err();
/// assert_eq!(error.to_string(), "parent: expected one of the 0 nodes, found node 3");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DraftTreeError {
    /// The parent is not in the tree.
    #[error("parent: expected one of the {nodes} nodes, found node {parent}")]
    #[non_exhaustive]
    UnknownParent {
        /// What was given.
        parent: usize,
        /// Nodes of the tree.
        nodes: usize,
    },
}

impl DraftTree {
    /// A tree without branches.
    ///
    /// ```
    /// assert!(pawl::DraftTree::chain([5, 6, 7]).is_chain());
    /// ```
    #[must_use]
    pub fn chain(tokens: impl IntoIterator<Item = u32>) -> Self {
        let node = |(index, token): (usize, u32)| Node {
            parent: index.checked_sub(1),
            token,
        };
        Self {
            nodes: tokens.into_iter().enumerate().map(node).collect(),
        }
    }

    /// Adds a guess of the token after `parent` (`None`: after the last known token) and gives its number. A guess that
    /// is there already is not added again: its number is given.
    ///
    /// # Errors
    /// A parent that is not in the tree.
    ///
    /// ```
    /// let mut tree = pawl::DraftTree::default();
    /// let first = tree.push(None, 5)?;
    /// assert_eq!(tree.push(None, 5)?, first);
    /// assert_eq!(tree.push(Some(first), 5)?, 1);
    /// # Ok::<(), pawl::DraftTreeError>(())
    /// ```
    pub fn push(&mut self, parent: Option<usize>, token: u32) -> Result<usize, DraftTreeError> {
        let nodes = self.nodes.len();
        if let Some(parent) = parent.filter(|parent| *parent >= nodes) {
            return Err(DraftTreeError::UnknownParent { parent, nodes });
        }
        if let Some(known) = self.child(parent, token) {
            return Ok(known);
        }
        self.nodes.push(Node { parent, token });
        Ok(nodes)
    }

    /// Its nodes.
    ///
    /// ```
    /// assert_eq!(pawl::DraftTree::chain([5, 6]).len(), 2);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether nothing is guessed.
    ///
    /// ```
    /// assert!(pawl::DraftTree::default().is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Parent and token of each node, by number.
    ///
    /// ```
    /// let tree = pawl::DraftTree::chain([5, 6]);
    /// assert_eq!(tree.nodes().next_back(), Some((Some(0), 6)));
    /// ```
    pub fn nodes(
        &self,
    ) -> impl ExactSizeIterator<Item = (Option<usize>, u32)> + DoubleEndedIterator + '_ {
        self.nodes.iter().map(|node| (node.parent, node.token))
    }

    /// Whether no token has two guesses; an empty tree is a chain.
    ///
    /// ```
    /// let mut tree = pawl::DraftTree::chain([5, 6]);
    /// assert!(tree.is_chain());
    /// tree.push(Some(0), 7)?;
    /// assert!(!tree.is_chain());
    /// # Ok::<(), pawl::DraftTreeError>(())
    /// ```
    #[must_use]
    pub fn is_chain(&self) -> bool {
        let mut nodes = self.nodes.iter().enumerate();
        nodes.all(|(index, node)| node.parent == index.checked_sub(1))
    }

    /// The token of a node.
    pub(crate) fn token(&self, node: usize) -> Option<u32> {
        self.nodes.get(node).map(|node| node.token)
    }

    /// The child of `parent` that guesses `token`.
    pub(crate) fn child(&self, parent: Option<usize>, token: u32) -> Option<usize> {
        let wanted = Node { parent, token };
        self.after(parent)
            .find(|(_, node)| **node == wanted)?
            .0
            .into()
    }

    /// The nodes from the root to the end, taking of each node's children the one pushed first.
    pub(crate) fn spine(&self) -> Vec<usize> {
        self.spine_below(None)
    }

    /// The same from a node on, without the node.
    pub(crate) fn spine_below(&self, from: Option<usize>) -> Vec<usize> {
        let first = |at: Option<usize>| {
            let mut below = self.after(at);
            below
                .find(|(_, node)| node.parent == at)
                .map(|found| found.0)
        };
        std::iter::successors(first(from), |at| first(Some(*at))).collect()
    }

    /// Drops the nodes whose token is refused, and everything below them.
    pub(crate) fn keep(&mut self, accepts: impl Fn(u32) -> bool) {
        self.retain(|_, node| accepts(node.token));
    }

    /// Drops what is deeper than `depth` (the first guess has depth 1), then all but the `nodes` pushed first.
    pub(crate) fn cut(&mut self, depth: usize, nodes: usize) {
        let mut depths = Vec::with_capacity(self.nodes.len());
        self.retain(|_, node| {
            // Every node is asked about whose parent stayed, so the depths are those of nodes that stayed.
            let above = node.parent.and_then(|parent| depths.get(parent)).copied();
            let own = above.unwrap_or(0) + 1;
            let stays = own <= depth && depths.len() < nodes;
            if stays {
                depths.push(own);
            }
            stays
        });
    }

    /// Drops what stands below the first tokens of a path that `useful` keeps; it is shown every path to a leaf.
    pub(crate) fn end_early(&mut self, mut useful: impl FnMut(&[u32]) -> usize) {
        let rows = Rows::of(self);
        let mut beyond = vec![false; self.len()];
        for row in 0..rows.len() {
            let path = rows.row(row);
            let tokens: Vec<u32> = path.iter().filter_map(|node| self.token(*node)).collect();
            for node in path.iter().skip(useful(&tokens)) {
                if let Some(beyond) = beyond.get_mut(*node) {
                    *beyond = true;
                }
            }
        }
        self.retain(|node, _| beyond.get(node) == Some(&false));
    }

    /// Drops the rows (paths to leaves) after the first `count`; what they share with those stays.
    pub(crate) fn narrow(&mut self, count: usize) {
        let rows = Rows::of(self).take(count);
        self.retain(|node, _| rows.canonical(node).is_some());
    }

    /// Appends a chain below the end of the spine.
    pub(crate) fn extend_tail(&mut self, tokens: impl IntoIterator<Item = u32>) {
        let mut parent = self.spine().last().copied();
        for token in tokens {
            self.nodes.push(Node { parent, token });
            parent = Some(self.nodes.len() - 1);
        }
    }

    /// Keeps the nodes that `stays` accepts and whose parents stayed. It is shown the node's old number and the parent's new
    /// one.
    fn retain(&mut self, mut stays: impl FnMut(usize, Node) -> bool) {
        let mut renumbered: Vec<Option<usize>> = Vec::with_capacity(self.nodes.len());
        let mut kept: Vec<Node> = Vec::with_capacity(self.nodes.len());
        for (index, node) in self.nodes.iter().enumerate() {
            let parent = node
                .parent
                .map(|parent| renumbered.get(parent).copied().flatten());
            let node = match parent {
                Some(None) => None,
                Some(parent) => Some(Node { parent, ..*node }),
                None => Some(*node),
            };
            let node = node.filter(|node| stays(index, *node));
            renumbered.push(node.map(|_| kept.len()));
            kept.extend(node);
        }
        self.nodes = kept;
    }

    /// The nodes that can be children of `parent`.
    fn after(&self, parent: Option<usize>) -> impl Iterator<Item = (usize, &Node)> {
        let first = parent.map_or(0, |parent| parent.saturating_add(1));
        self.nodes.iter().enumerate().skip(first)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Any tree of up to `most` nodes over a small vocabulary.
    pub(in crate::speculate) fn trees(
        most: usize,
        vocabulary: u32,
    ) -> impl Strategy<Value = DraftTree> {
        proptest::collection::vec((any::<u16>(), 0..vocabulary), 0..=most).prop_map(|pushes| {
            let mut tree = DraftTree::default();
            for (choice, token) in pushes {
                let parent = (usize::from(choice) % (tree.len() + 1)).checked_sub(1);
                tree.push(parent, token).unwrap();
            }
            tree
        })
    }

    /// The tokens from the root to each node, the node's own last.
    pub(in crate::speculate) fn paths(tree: &DraftTree) -> Vec<Vec<u32>> {
        let mut paths: Vec<Vec<u32>> = Vec::new();
        for (parent, token) in tree.nodes() {
            let mut path = parent.map_or(Vec::new(), |parent| paths[parent].clone());
            path.push(token);
            paths.push(path);
        }
        paths
    }

    #[test]
    fn an_unknown_parent_is_refused() {
        let mut tree = DraftTree::chain([1]);
        assert!(tree.push(Some(1), 2).is_err());
        assert_eq!(tree.len(), 1);
    }

    #[test]
    fn a_tail_goes_below_the_spine() {
        let mut tree = DraftTree::chain([1, 2]);
        tree.push(None, 9).unwrap();
        tree.extend_tail([3, 4]);
        assert_eq!(
            paths(&tree),
            [
                vec![1],
                vec![1, 2],
                vec![9],
                vec![1, 2, 3],
                vec![1, 2, 3, 4]
            ]
        );
        let mut empty = DraftTree::default();
        empty.extend_tail([7, 8]);
        assert_eq!(empty, DraftTree::chain([7, 8]));
    }

    proptest! {
        #[test]
        fn nothing_is_doubled_and_parents_come_first(tree in trees(24, 4)) {
            let mut paths = paths(&tree);
            for (index, (parent, _)) in tree.nodes().enumerate() {
                prop_assert!(parent.is_none_or(|parent| parent < index));
            }
            let all = paths.len();
            paths.sort();
            paths.dedup();
            prop_assert_eq!(paths.len(), all);
        }

        #[test]
        fn a_refused_token_takes_what_is_below_along(tree in trees(24, 4), refused in 0_u32..4) {
            let mut kept = tree.clone();
            kept.keep(|token| token != refused);
            let mut expected = paths(&tree);
            expected.retain(|path| !path.contains(&refused));
            prop_assert_eq!(paths(&kept), expected);
        }

        #[test]
        fn a_cut_keeps_what_was_pushed_first(
            tree in trees(24, 4), depth in 0_usize..6, nodes in 0_usize..26,
        ) {
            let mut cut = tree.clone();
            cut.cut(depth, nodes);
            let mut expected = paths(&tree);
            expected.retain(|path| path.len() <= depth);
            expected.truncate(nodes);
            prop_assert_eq!(paths(&cut), expected);
        }

        #[test]
        fn nothing_stands_below_an_end(tree in trees(24, 4), end in 0_u32..4) {
            let mut early = tree.clone();
            early.end_early(|path| {
                path.iter().position(|token| *token == end).map_or(path.len(), |at| at + 1)
            });
            let mut expected = paths(&tree);
            expected.retain(|path| !path[..path.len() - 1].contains(&end));
            prop_assert_eq!(paths(&early), expected);
        }

        #[test]
        fn a_narrow_tree_has_the_first_rows(tree in trees(24, 4), count in 0_usize..9) {
            let all = Rows::of(&tree);
            let mut narrow = tree.clone();
            narrow.narrow(count);
            let rows = Rows::of(&narrow);
            prop_assert_eq!(rows.len(), all.len().min(count.max(1)));
            let tokens = |tree: &DraftTree, path: &[usize]| -> Vec<_> {
                path.iter().map(|node| tree.token(*node)).collect()
            };
            for row in 0..rows.len() {
                prop_assert_eq!(tokens(&narrow, rows.row(row)), tokens(&tree, all.row(row)));
            }
        }

        #[test]
        fn a_chain_has_one_guess_of_each_token(tree in trees(6, 2)) {
            let spine = tree.spine();
            prop_assert_eq!(tree.is_chain(), spine.len() == tree.len());
        }
    }
}
