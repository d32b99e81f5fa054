//! A tree as rows that the decoder can run.

use super::tree::DraftTree;

/// The paths of a tree from the root to its leaves. Each is run as one row after the last known token, so nodes that
/// several paths share are computed in each of them; one of these, the *canonical* one, decides.
///
/// Row 0 is the spine (from each node the child pushed first) and is there even when the tree is empty: it is the row
/// that the request runs anyway. Each further row follows the spine below one node that is not its parent's first child,
/// in the order in which these nodes were pushed. So every prefix of the rows is a tree, and a row adds to the rows before
/// it exactly the nodes from that node on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    rows: Vec<Vec<usize>>,
    /// By node: the lowest row that holds it and where in the row.
    canonical: Vec<Option<(usize, usize)>>,
}

impl Rows {
    /// All rows of a tree.
    pub(crate) fn of(tree: &DraftTree) -> Self {
        let mut rows = Self {
            rows: Vec::new(),
            canonical: vec![None; tree.len()],
        };
        rows.push(tree.spine(), 0);
        for (node, (parent, _)) in tree.nodes().enumerate() {
            if rows.canonical(node).is_some() {
                continue;
            }
            // The parent was pushed before, so an earlier row holds it.
            let shared = parent.and_then(|parent| rows.canonical(parent));
            let shared = shared.and_then(|(row, index)| rows.row(row).get(..=index));
            let mut path = shared.map_or(Vec::new(), <[usize]>::to_vec);
            let own = path.len();
            path.push(node);
            path.extend(tree.spine_below(Some(node)));
            rows.push(path, own);
        }
        rows
    }

    /// The first `count` rows; row 0 always stays.
    pub(crate) fn take(mut self, count: usize) -> Self {
        let count = count.max(1);
        self.rows.truncate(count);
        for place in &mut self.canonical {
            *place = place.filter(|(row, _)| *row < count);
        }
        self
    }

    /// Number of rows, at least 1.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The nodes of a row, from the first guess on; empty where there is no such row.
    pub(crate) fn row(&self, row: usize) -> &[usize] {
        self.rows.get(row).map_or(&[], Vec::as_slice)
    }

    /// The lowest row that holds a node, and the node's index in it. `None` where the row was not taken.
    pub(crate) fn canonical(&self, node: usize) -> Option<(usize, usize)> {
        self.canonical.get(node).copied().flatten()
    }

    /// Whether a node (`None`: the root) has a child in the rows.
    pub(crate) fn has_below(&self, tree: &DraftTree, node: Option<usize>) -> bool {
        let mut nodes = tree.nodes().enumerate();
        nodes.any(|(child, (parent, _))| parent == node && self.canonical(child).is_some())
    }

    fn push(&mut self, path: Vec<usize>, own: usize) {
        let row = self.rows.len();
        for (index, node) in path.iter().enumerate().skip(own) {
            if let Some(place) = self.canonical.get_mut(*node) {
                *place = Some((row, index));
            }
        }
        self.rows.push(path);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::tests::trees;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn rows_follow_their_first_own_node() {
        let mut tree = DraftTree::chain([1, 2, 3]);
        let late = tree.push(Some(1), 4).unwrap();
        let early = tree.push(None, 5).unwrap();
        let leaf = tree.push(Some(early), 6).unwrap();
        let rows = Rows::of(&tree);
        let found: Vec<_> = (0..rows.len()).map(|row| rows.row(row).to_vec()).collect();
        assert_eq!(found, [vec![0, 1, 2], vec![0, 1, late], vec![early, leaf]]);
        assert_eq!(rows.canonical(1), Some((0, 1)));
        assert_eq!(rows.canonical(leaf), Some((2, 1)));
        assert!(rows.row(3).is_empty());
    }

    #[test]
    fn the_first_row_is_always_there() {
        let rows = Rows::of(&DraftTree::default());
        assert_eq!((rows.len(), rows.row(0)), (1, &[][..]));
        assert_eq!(Rows::of(&DraftTree::chain([1, 2])).take(0).row(0), [0, 1]);
    }

    proptest! {
        #[test]
        fn rows_are_the_paths_to_the_leaves(tree in trees(24, 4)) {
            let rows = Rows::of(&tree);
            let parents: Vec<_> = tree.nodes().map(|(parent, _)| parent).collect();
            let leaves: BTreeSet<_> =
                (0..tree.len()).filter(|node| !parents.contains(&Some(*node))).collect();
            let ends: Vec<_> = (0..rows.len()).filter_map(|row| rows.row(row).last()).collect();
            prop_assert_eq!(ends.len(), leaves.len());
            prop_assert_eq!(ends.into_iter().copied().collect::<BTreeSet<_>>(), leaves);
            for row in 0..rows.len() {
                let above = rows.row(row).iter().map(|node| parents[*node]);
                let expected = std::iter::once(None).chain(rows.row(row).iter().copied().map(Some));
                prop_assert!(above.eq(expected.take(rows.row(row).len())));
            }
        }

        #[test]
        fn a_node_belongs_to_the_lowest_row_that_holds_it(tree in trees(24, 4), take in 0_usize..9) {
            let rows = Rows::of(&tree).take(take);
            for node in 0..tree.len() {
                let place = |row| Some((row, rows.row(row).iter().position(|held| *held == node)?));
                prop_assert_eq!(rows.canonical(node), (0..rows.len()).find_map(place));
            }
        }

        #[test]
        fn first_rows_are_a_tree_whose_first_own_nodes_rise(tree in trees(24, 4), take in 1_usize..9) {
            let all = Rows::of(&tree);
            let rows = all.clone().take(take);
            prop_assert_eq!(rows.len(), take.min(all.len()));
            let own = |row| rows.row(row).iter().find(|node| rows.canonical(**node).unwrap().0 == row);
            let own: Vec<_> = (1..rows.len()).map(own).collect();
            prop_assert!(own.iter().all(Option::is_some));
            prop_assert!(own.is_sorted());
            prop_assert_eq!(rows.row(0), &tree.spine()[..]);
        }
    }
}
