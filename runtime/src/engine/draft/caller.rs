//! Drafts that a request's caller supplies.

use super::{Drafter, Drafting};
use crate::engine::error::EngineError;
use crate::speculate::{DraftTree, Drafts, Source};
use std::panic::{AssertUnwindSafe, catch_unwind};

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
            match ask(source, &tokens, most) {
                Ok(tree) => row.proposal.tree = tree,
                Err(reason) => row.failure = Some(reason),
            }
        }
        Ok(())
    }
}

/// A source is the caller's code: whatever it does, the engine goes on.
fn ask(Drafts(source): &Drafts, tokens: &[u32], most: usize) -> Result<DraftTree, String> {
    match catch_unwind(AssertUnwindSafe(|| source.propose_tree(tokens, most))) {
        Ok(Ok(tree)) => Ok(tree),
        Ok(Err(error)) => Err(format!("the request's source of drafts failed: {error}")),
        Err(_) => Err("the request's source of drafts panicked".to_owned()),
    }
}
