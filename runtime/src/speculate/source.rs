//! The kinds of sources, and what one of them proposes.

use super::control::{Arm, Why};
use super::rows::Rows;
use super::tree::DraftTree;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A kind of source of drafts.
///
/// ```
/// assert_eq!(pawl::Source::Lookup.to_string(), "lookup");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Source {
    /// The request's caller ([`crate::Request::drafts`]).
    Caller,
    /// The model's multi-token-prediction head.
    Head,
    /// What followed the same tokens before, in the request's own prompt and output.
    Lookup,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Caller => "caller",
            Self::Head => "head",
            Self::Lookup => "lookup",
        })
    }
}

/// Drafts for the next step of one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Proposal {
    /// The drafts.
    pub(crate) tree: DraftTree,
    /// Who made them; the first one where a second has added to them.
    pub(crate) source: Option<Source>,
    /// Who added drafts below the spine of the first one, and how many that had.
    pub(crate) tail: Option<(Source, usize)>,
    /// Of the first drafts of the spine, how sure their source was, in `0..=1`; as many as it told.
    pub(crate) confidences: Vec<f32>,
    /// The source as the controller knows it, and the rows that it could fill; `None` where nobody was asked.
    pub(crate) arm: Option<Arm>,
    /// Why it is as large as it is; `None` before anything was decided.
    pub(crate) why: Option<Why>,
    /// Drafts that are not among them because the request's grammar does not allow them.
    pub(crate) forbidden: usize,
}

impl Proposal {
    /// Adds a draft below the last one. `margin` is how far its logit was above any other's.
    pub(crate) fn append(&mut self, token: u32, margin: f32) {
        self.tree.extend_tail([token]);
        self.confidences.push(1.0 - (-margin).exp());
    }

    /// The tokens of the spine.
    pub(crate) fn spine(&self) -> Vec<u32> {
        let spine = self.tree.spine().into_iter();
        spine.filter_map(|node| self.tree.token(node)).collect()
    }

    /// Drafts of each row that branches off the spine.
    pub(crate) fn branches(&self) -> Vec<usize> {
        let rows = Rows::of(&self.tree);
        (1..rows.len()).map(|row| rows.row(row).len()).collect()
    }

    /// The tree as far as it is run: `drafts` of the spine, and the first `branches` of the rows that branch off it.
    pub(crate) fn granted(&self, drafts: usize, branches: usize) -> (DraftTree, Rows) {
        let mut tree = self.tree.clone();
        if branches == 0 {
            tree = DraftTree::chain(self.spine());
            tree.cut(drafts, drafts);
        }
        let rows = Rows::of(&tree).take(1 + branches);
        (tree, rows)
    }
}
