//! What is asked of speculation.

use super::error::SpeculationError;
use super::mode::{DraftPolicy, Speculation};
use crate::settings;

/// What is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    /// The mode.
    pub(crate) mode: Option<Speculation>,
    /// Whether the environment says so, not the caller.
    pub(crate) by_variable: bool,
    /// Drafts of one row, at most.
    pub(crate) max_drafts: Option<usize>,
    /// Drafts of one tree, at most.
    pub(crate) tree_nodes: Option<usize>,
    /// Whether the number of drafts follows what they bring.
    pub(crate) policy: Option<DraftPolicy>,
}

impl Wanted {
    /// With the mode of the environment, where the caller chose none.
    pub(crate) fn or(self, variable: Option<Speculation>) -> Self {
        Self {
            mode: self.mode.or(variable),
            by_variable: self.mode.is_none() && variable.is_some(),
            ..self
        }
    }

    /// Refuses what no model could serve.
    pub(crate) fn check(&self) -> Result<(), SpeculationError> {
        self.mode.map_or(Ok(()), |mode| self.refuse_unused(mode))
    }

    /// Refuses numbers of drafts that the mode never makes: whoever gives one expects it to be of use.
    pub(super) fn refuse_unused(&self, mode: Speculation) -> Result<(), SpeculationError> {
        let by = match self.mode {
            None => "the default speculation",
            Some(_) if self.by_variable => settings::SPECULATION.name,
            Some(_) => "speculation",
        };
        let off = mode == Speculation::Off;
        let drafts = self.max_drafts.filter(|_| off);
        let nodes = self.tree_nodes.filter(|_| !mode.branches());
        let unused = drafts.map(|drafts| ("max_drafts", drafts));
        match unused.or(nodes.map(|nodes| ("tree_nodes", nodes))) {
            None => Ok(()),
            Some((option, value)) => Err(SpeculationError::Unused {
                option,
                value,
                by,
                mode,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::mode::EffectiveSpeculation;
    use super::super::mode::tests::OFFER;
    use super::*;

    #[test]
    fn numbers_that_a_mode_has_no_use_for_are_refused() {
        let refused = |mode, by_variable, max_drafts, tree_nodes| {
            let numbers = Wanted {
                max_drafts,
                tree_nodes,
                ..Wanted::default()
            };
            let wanted = if by_variable {
                numbers.or(mode)
            } else {
                let of_caller = Wanted { mode, ..numbers };
                // The caller's choice goes before the environment's.
                of_caller.or(mode.map(|_| Speculation::Tree))
            };
            let chosen = EffectiveSpeculation::choose(&wanted, OFFER);
            if mode.is_some() {
                assert_eq!(chosen.as_ref().err(), wanted.check().err().as_ref());
            }
            chosen.err().map(|error| error.to_string())
        };
        let off = Some(Speculation::Off);
        let told = |says: &str| Some(says.to_owned());
        assert_eq!(
            refused(off, false, Some(3), Some(8)),
            told(
                "max_drafts is 3, but speculation is off, which drafts nothing; choose another mode, or leave max_drafts out"
            )
        );
        assert_eq!(
            refused(off, true, Some(3), None),
            told(
                "max_drafts is 3, but PAWL_SPECULATION is off, which drafts nothing; choose another mode, or leave max_drafts out"
            )
        );
        let nodes = |mode, by_variable| refused(mode, by_variable, None, Some(4));
        assert!(
            nodes(off, false)
                .unwrap()
                .starts_with("tree_nodes is 4, but speculation is off")
        );
        assert_eq!(
            nodes(None, false),
            told(
                "tree_nodes is 4, but the default speculation is mtp, which drafts no trees; choose another mode, or leave \
                 tree_nodes out"
            )
        );
        let ngram = nodes(Some(Speculation::Ngram), true).unwrap();
        assert!(ngram.contains("PAWL_SPECULATION is ngram, which drafts no trees"));
        for mode in [Speculation::Tree, Speculation::Auto] {
            assert_eq!(refused(Some(mode), true, Some(3), Some(4)), None);
        }
    }
}
