//! The drafts of a step that branched: one line per draft, each below the one that it follows.

use super::draw::visible;
use super::format::Draft;
use serde::Serialize;
use std::collections::HashSet;

/// Lines are indented up to this depth, so that a page stays as wide as its window.
const DEEPEST: usize = 32;

/// One draft of a tree. Those that follow it come next, one step further in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Node {
    /// Its number in the trace.
    pub(super) number: usize,
    /// Steps in.
    pub(super) indent: usize,
    /// `accepted` on the path that was kept, else `rejected`.
    pub(super) kind: &'static str,
    pub(super) text: String,
    pub(super) about: String,
}

/// Every draft once, in the order of its line. A parent comes before its children in the trace.
pub(super) fn nodes(drafted: &[Draft], path: &HashSet<usize>) -> Vec<Node> {
    let mut below = vec![Vec::new(); drafted.len()];
    let mut open = Vec::new();
    for (number, draft) in drafted.iter().enumerate().rev() {
        match draft.parent.and_then(|parent| below.get_mut(parent)) {
            Some(siblings) => siblings.push(number),
            None => open.push((number, 0)),
        }
    }
    let mut lines = Vec::with_capacity(drafted.len());
    while let Some((number, depth)) = open.pop() {
        let Some(draft) = drafted.get(number) else {
            continue;
        };
        lines.push(line(number, depth, draft, path.contains(&number)));
        let children = below.get(number).into_iter().flatten();
        open.extend(children.map(|child| (*child, depth + 1)));
    }
    lines
}

fn line(number: usize, depth: usize, draft: &Draft, kept: bool) -> Node {
    let id = draft.token.id;
    let above = match draft.parent {
        Some(parent) => format!("follows draft {parent}"),
        None => "follows the text".to_owned(),
    };
    Node {
        number,
        indent: depth.min(DEEPEST),
        kind: if kept { "accepted" } else { "rejected" },
        text: visible(&draft.token.text, id),
        about: format!("draft {number}, {above}, token {id}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::tests::token;
    use super::*;

    fn draft(parent: Option<usize>, id: u32) -> Draft {
        Draft {
            parent,
            token: token(id, ""),
        }
    }

    #[test]
    fn a_branch_stands_below_its_parent_and_the_kept_path_is_marked() {
        let parents = [None, None, Some(0), Some(1), Some(0), Some(3)];
        let drafted: Vec<Draft> = (0..).zip(parents).map(|(id, up)| draft(up, id)).collect();
        let lines = nodes(&drafted, &HashSet::from([1, 3]));
        let shown: Vec<_> = lines.iter().map(|n| (n.number, n.indent)).collect();
        assert_eq!(shown, [(0, 0), (2, 1), (4, 1), (1, 0), (3, 1), (5, 2)]);
        let kept = lines.iter().filter(|node| node.kind == "accepted");
        assert_eq!(kept.map(|node| node.number).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(lines[4].about, "draft 3, follows draft 1, token 3");
    }

    /// Of every tree of six drafts: the last line above that is one step further out is the parent's.
    #[test]
    fn every_draft_stands_once_under_its_parent() {
        for shape in 0..720 {
            let parent =
                |at: usize| (shape / (1..=at).product::<usize>() % (at + 1)).checked_sub(1);
            let drafted: Vec<Draft> = (0..6).map(|at| draft(parent(at), 0)).collect();
            let lines = nodes(&drafted, &HashSet::new());
            let mut open: Vec<usize> = Vec::new();
            for node in &lines {
                open.truncate(node.indent);
                assert_eq!(open.last().copied(), drafted[node.number].parent);
                open.push(node.number);
            }
            let numbers: HashSet<usize> = lines.iter().map(|node| node.number).collect();
            assert_eq!((lines.len(), numbers.len()), (6, 6));
        }
    }

    #[test]
    fn a_deep_tree_takes_one_look_at_each_draft() {
        let mut drafted: Vec<Draft> = (0..200_000)
            .map(|at: usize| draft(at.checked_sub(1), 7))
            .collect();
        drafted.push(draft(None, 8));
        let lines = nodes(&drafted, &HashSet::new());
        assert_eq!((lines.len(), lines[100].indent), (200_001, DEEPEST));
        assert_eq!(lines.last().unwrap().indent, 0);
    }
}
