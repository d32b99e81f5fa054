//! What is decided about the drafts of one request's next step.

use super::source::Source;

/// Where drafts are to come from, and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Who makes them; nobody when nothing is to be drafted.
    pub(crate) source: Option<Source>,
    /// Who may add to them.
    pub(crate) tail: Option<Source>,
    /// Drafts along one path, at most.
    pub(crate) drafts: usize,
    /// Rows of one tree, at most.
    pub(crate) width: usize,
    /// Why, in words.
    pub(crate) why: &'static str,
}

impl Default for Choice {
    fn default() -> Self {
        Self {
            source: None,
            tail: None,
            drafts: 0,
            width: 1,
            why: "nothing to draft",
        }
    }
}
