//! What the controller is asked, and what it says.

use super::acceptance::Arm;
use super::choose::Pick;
use crate::ids::RequestId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Where drafts come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Source {
    /// The caller of the request.
    Caller,
    /// The request's own text.
    Lookup,
    /// The model's head.
    Head,
    /// The head, then what followed its drafts in the request's own text.
    HeadThenLookup,
}

impl Source {
    /// All of them.
    pub(crate) const ALL: [Self; 4] =
        [Self::Caller, Self::Lookup, Self::Head, Self::HeadThenLookup];
}

impl Source {
    /// Whether a head drafts.
    pub(crate) fn heads(self) -> bool {
        matches!(self, Self::Head | Self::HeadThenLookup)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Caller => "caller",
            Self::Lookup => "ngram",
            Self::Head => "mtp",
            Self::HeadThenLookup => "mtp, then ngram",
        })
    }
}

/// A source that a request could draft from now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Available {
    /// The source.
    pub(crate) source: Source,
    /// Drafts that it has at most; 0 for none now.
    pub(crate) drafts: usize,
    /// Rows that it can fill; 1 for a source that drafts chains.
    pub(crate) width: usize,
    /// How sure it is of its first draft, from 0 to 1, where it says. What that is worth is learnt.
    pub(crate) confidence: Option<f32>,
    /// Whether its drafts are to be compared even where that does not pay: nobody knows yet if it is any good.
    pub(crate) unproven: bool,
}

/// A request that decodes in the next step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decoding {
    /// Which.
    pub(crate) request: RequestId,
    /// Its tokens so far.
    pub(crate) context: usize,
    /// Drafts that make sense: what it may still generate, and what fits its context.
    pub(crate) room: usize,
    /// Sources, the preferred first.
    pub(crate) sources: Vec<Available>,
}

/// What a request does in the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Where it drafts from; `None` without drafts.
    pub(crate) source: Option<Source>,
    /// Drafts of its longest row, at most.
    pub(crate) drafts: usize,
    /// Rows, at most.
    pub(crate) width: usize,
    /// Why.
    pub(crate) why: Why,
}

/// Why a request drafts as it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The policy says so.
    Fixed,
    /// It gives the most tokens per second.
    Fastest,
    /// Drafts cost more than they give.
    NotWorth,
    /// Nothing fits before the request's end.
    NoRoom,
    /// No source has drafts.
    NoDrafts,
    /// Plain steps are measured: nothing is known of them yet.
    FirstSteps,
    /// A plain step is measured among steps with drafts.
    PlainProbe,
    /// A number of drafts is measured that was not seen yet.
    ShapeProbe,
    /// A number of drafts is measured again.
    CostProbe,
    /// Another source or width is measured.
    SourceProbe,
    /// Drafts that were not worth it are tried again.
    Trial,
    /// It is found out whether a source is any good.
    Proof,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fixed => "fixed",
            Self::Fastest => "fastest",
            Self::NotWorth => "drafts cost more than they give",
            Self::NoRoom => "the request is about to end",
            Self::NoDrafts => "no source has drafts",
            Self::FirstSteps => "first steps are measured",
            Self::PlainProbe => "a plain step is measured",
            Self::ShapeProbe => "another number of drafts is measured",
            Self::CostProbe => "another number of drafts is measured again",
            Self::SourceProbe => "another source or width is tried",
            Self::Trial => "drafts are tried again",
            Self::Proof => "it is found out whether its drafts are any good",
        })
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source {
            None => write!(f, "plain: {}", self.why),
            Some(source) if self.width > 1 => {
                write!(
                    f,
                    "{source}, {} drafts in {} rows: {}",
                    self.drafts, self.width, self.why
                )
            }
            Some(source) => write!(f, "{source}, {} drafts: {}", self.drafts, self.why),
        }
    }
}

impl Choice {
    pub(super) fn plain(why: Why) -> Self {
        Self {
            source: None,
            drafts: 0,
            width: 1,
            why,
        }
    }

    pub(super) fn of(pick: Pick, why: Why) -> Self {
        Self {
            source: Some(pick.arm.source),
            drafts: pick.drafts,
            width: pick.arm.width,
            why,
        }
    }

    /// Where it drafts from, and in how many rows at most.
    pub(crate) fn arm(&self) -> Option<Arm> {
        let (source, width) = (self.source?, self.width);
        Some(Arm { source, width })
    }

    pub(super) fn pick(&self) -> Option<Pick> {
        let (arm, drafts) = (self.arm()?, self.drafts);
        Some(Pick { arm, drafts })
    }
}

/// What came of one row, or of the rows of one tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Round<'a> {
    /// Who was asked for drafts, and for how many rows; `None` where nobody was.
    pub(crate) arm: Option<Arm>,
    /// Whether there were any.
    pub(crate) answered: bool,
    /// Positions that were compared.
    pub(crate) evaluated: usize,
    /// Drafts that were accepted.
    pub(crate) accepted: usize,
    /// How sure the source was of each draft of the first row, where it says; else empty.
    pub(crate) confidences: &'a [f32],
}
