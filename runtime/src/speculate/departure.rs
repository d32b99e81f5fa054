//! What is not run of the drafts that a request's caller supplies.

use std::fmt;

/// Why a caller's drafts are not run as its source made them. It goes into the request's fallbacks in these words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// The source failed for this reason, and is not asked any more.
    Failed(String),
    /// Tokens that do not exist.
    UnknownTokens,
    /// Branches, where no trees are run.
    Branches,
}

impl fmt::Display for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed(reason) => reason,
            Self::UnknownTokens => {
                "the request's source of drafts proposed tokens that are not in the vocabulary; they were left out, with \
                 what followed them"
            }
            Self::Branches => {
                "the request's source of drafts proposed trees, and none are run here; the first guess of each token was \
                 taken"
            }
        })
    }
}
