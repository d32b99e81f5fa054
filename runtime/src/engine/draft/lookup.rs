//! Drafts by lookup: what followed the last time the text ended like this.

use super::governor::sureness;
use super::{Drafter, Drafting};
use crate::engine::accept::Decided;
use crate::engine::active::Active;
use crate::engine::error::EngineError;
use crate::ids::RequestId;
use crate::limits::SHARED_TOKENS;
use crate::speculate::{LONGEST, SharedTexts, Source, Suffixes, TreeLimits};
use std::collections::HashMap;

/// Looks up endings of each request's own prompt and output, and of texts that requests of its scope left.
///
/// The index of a request is a function of its published tokens, and catches up with them when it is next asked; tokens
/// of a step that is not published yet are looked up without being indexed. So it needs no part in the transaction, and a
/// request that continues a state has its index from the first step on.
#[derive(Debug)]
pub(super) struct LookupDrafter {
    texts: HashMap<RequestId, Text>,
    shared: SharedTexts,
}

/// What is known of one request.
#[derive(Debug, Default)]
struct Text {
    index: Suffixes,
    /// Its scope and its tokens, if it shares them.
    shares: Option<(String, Vec<u32>)>,
}

impl Default for LookupDrafter {
    fn default() -> Self {
        Self {
            texts: HashMap::new(),
            shared: SharedTexts::new(SHARED_TOKENS),
        }
    }
}

impl Text {
    /// Indexes what has been published since the last time.
    fn catch_up(&mut self, active: &Active) {
        for token in active.tokens.get(self.index.len()..).unwrap_or_default() {
            self.index.push(*token);
        }
        if let Some(scope) = &active.scope {
            let (_, tokens) = self
                .shares
                .get_or_insert_with(|| (scope.clone(), Vec::new()));
            let new = active.tokens.get(tokens.len()..).unwrap_or_default();
            tokens.extend_from_slice(new);
        }
    }
}

impl LookupDrafter {
    /// Adds drafts to those of other sources, or a tree where there are none yet.
    fn look_up(&mut self, active: &Active, row: &mut Decided, most: usize) {
        let text = self.texts.entry(row.request).or_default();
        text.catch_up(active);
        let spine = row.proposal.spine();
        let fresh: Vec<u32> = row.fresh().iter().chain(&spine).copied().collect();
        let tree = row.choice.width > 1 && spine.is_empty();
        if row.choice.tail == Some(Source::Lookup) {
            row.proposal.tail = Some((Source::Lookup, spine.len()));
        }
        let most = most.saturating_sub(spine.len());
        let own = text.index.find(&fresh).map_or(0, |found| found.length);
        let scope = active.scope.as_ref().filter(|_| self.shared.held() > 0);
        let ending = scope.map_or(Vec::new(), |_| ending(&active.tokens, &fresh));
        let scope = scope.filter(|scope| {
            let found = self.shared.find(scope, &ending);
            found.is_some_and(|found| found.length > own)
        });
        if row.choice.source == Some(Source::Lookup) {
            let shared = scope.and_then(|scope| self.shared.find(scope, &ending));
            let length = shared.map_or(own, |found| found.length);
            row.proposal.confidences.push(sureness(length));
        }
        let limits = TreeLimits {
            nodes: row.choice.nodes,
            depth: most,
            rows: row.choice.width,
        };
        match (scope, tree) {
            (None, true) => row.proposal.tree = text.index.propose_tree(&fresh, limits),
            (Some(scope), true) => {
                row.proposal.tree = self.shared.propose_tree(scope, &ending, limits);
            }
            (None, false) => {
                let found = text.index.propose(&fresh, most);
                row.proposal.tree.extend_tail(found);
            }
            (Some(scope), false) => {
                let found = self.shared.propose(scope, &ending, most);
                row.proposal.tree.extend_tail(found);
            }
        }
    }
}

/// The last tokens of a text followed by fresh ones, as many as are looked up.
fn ending(tokens: &[u32], fresh: &[u32]) -> Vec<u32> {
    let known = tokens.get(tokens.len().saturating_sub(LONGEST)..);
    known
        .into_iter()
        .chain([fresh])
        .flatten()
        .copied()
        .collect()
}

impl Drafter for LookupDrafter {
    fn source(&self) -> Source {
        Source::Lookup
    }

    fn propose(&mut self, drafting: &mut Drafting<'_, '_, '_>) -> Result<(), EngineError> {
        for row in drafting.rows.iter_mut() {
            let most = row.wanted(Source::Lookup);
            let active = drafting.requests.iter().find(|a| a.id == row.request);
            if let (Some(active), true) = (active, most > 0) {
                self.look_up(active, row, most);
            }
        }
        Ok(())
    }

    fn survey(&mut self, active: &Active, row: &Decided) -> Option<usize> {
        let text = self.texts.entry(row.request).or_default();
        text.catch_up(active);
        let own = text.index.find(row.fresh()).map(|found| found.length);
        let scope = active.scope.as_ref().filter(|_| self.shared.held() > 0);
        let shared = scope.and_then(|scope| {
            let ending = ending(&active.tokens, row.fresh());
            self.shared.find(scope, &ending)
        });
        own.max(shared.map(|found| found.length))
    }

    fn forget(&mut self, of: RequestId) {
        let text = self.texts.remove(&of);
        if let Some((scope, tokens)) = text.and_then(|text| text.shares) {
            self.shared.learn(&scope, &tokens);
        }
    }

    fn bytes(&self) -> usize {
        let texts = self.texts.values();
        let own: usize = texts.map(|text| text.index.bytes()).sum();
        own + self.shared.bytes()
    }
}
