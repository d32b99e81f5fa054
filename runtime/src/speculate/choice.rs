//! What is decided about the drafts of one request's next step.

use super::control::{Arm, Why};
use super::source::Source;

/// Where drafts are to come from, and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// The source as the controller knows it, and the rows that it may fill.
    pub(crate) arm: Option<Arm>,
    /// Who makes them; nobody when nothing is to be drafted.
    pub(crate) source: Option<Source>,
    /// Who may add to them.
    pub(crate) tail: Option<Source>,
    /// Drafts along one path, at most.
    pub(crate) drafts: usize,
    /// How many of these the source makes, before another may add to them.
    pub(crate) own: usize,
    /// Whether so many drafts are made however unsure their source is, to learn what they cost.
    pub(crate) explores: bool,
    /// Rows that they may fill, at most; 1 without branches.
    pub(crate) width: usize,
    /// Nodes of a tree, at most.
    pub(crate) nodes: usize,
    /// Why.
    pub(crate) why: Why,
}

impl Default for Choice {
    fn default() -> Self {
        Self {
            arm: None,
            source: None,
            tail: None,
            drafts: 0,
            own: 0,
            explores: false,
            width: 1,
            nodes: 0,
            why: Why::NoRoom,
        }
    }
}
