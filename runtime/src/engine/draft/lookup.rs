//! Drafts by lookup: what followed the last time the text ended like this.

use super::{Drafter, Drafting};
use crate::engine::error::EngineError;
use crate::ids::RequestId;
use crate::speculate::{Source, Suffixes};
use std::collections::HashMap;

/// Looks up endings of each request's own prompt and output.
///
/// The index of a request is a function of its published tokens, and catches up with them when it is next asked; tokens
/// of a step that is not published yet are looked up without being indexed. So it needs no part in the transaction, and a
/// request that continues a state has its index from the first step on.
#[derive(Debug, Default)]
pub(super) struct LookupDrafter {
    indices: HashMap<RequestId, Suffixes>,
}

impl Drafter for LookupDrafter {
    fn source(&self) -> Source {
        Source::Lookup
    }

    fn propose(&mut self, drafting: &mut Drafting<'_, '_, '_>) -> Result<(), EngineError> {
        for row in drafting.rows.iter_mut() {
            let most = row.wanted(Source::Lookup);
            let active = drafting.requests.iter().find(|a| a.id == row.request);
            let (Some(active), true) = (active, most > 0) else {
                continue;
            };
            let index = self.indices.entry(row.request).or_default();
            for token in active.tokens.get(index.len()..).unwrap_or_default() {
                index.push(*token);
            }
            if row.choice.width > 1 && row.proposal.tree.is_empty() {
                row.proposal.tree = index.propose_tree(row.fresh(), most, row.choice.nodes);
                continue;
            }
            let spine = row.proposal.spine();
            let fresh: Vec<u32> = row.fresh().iter().chain(&spine).copied().collect();
            let found = index.propose(&fresh, most.saturating_sub(spine.len()));
            row.proposal.tree.extend_tail(found);
        }
        Ok(())
    }

    fn forget(&mut self, of: RequestId) {
        self.indices.remove(&of);
    }

    fn bytes(&self) -> usize {
        self.indices.values().map(Suffixes::bytes).sum()
    }
}
