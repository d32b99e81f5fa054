//! Drafts that a request's caller supplies.

use super::{Drafter, Drafting};
use crate::engine::error::EngineError;
use crate::speculate::{Departure, Source};

/// Asks the callers' sources. Keeps nothing: each of them is given all tokens every time.
#[derive(Debug)]
pub(super) struct CallerDrafter;

impl Drafter for CallerDrafter {
    fn source(&self) -> Source {
        Source::Caller
    }

    fn propose(&mut self, drafting: &mut Drafting<'_, '_, '_>) -> Result<(), EngineError> {
        for row in drafting.rows.iter_mut() {
            let most = row.wanted(Source::Caller);
            let active = drafting.requests.iter().find(|a| a.id == row.request);
            let Some((active, source)) = active.and_then(|a| Some((a, a.drafts.as_ref()?))) else {
                continue;
            };
            if most == 0 {
                continue;
            }
            let tokens: Vec<u32> = active.tokens.iter().chain(row.fresh()).copied().collect();
            match source.ask(&tokens, most) {
                Ok(tree) => row.proposal.tree = tree,
                Err(reason) => row.departures.push(Departure::Failed(reason)),
            }
        }
        Ok(())
    }
}
