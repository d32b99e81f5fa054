//! Texts that requests of one scope share, to draft from each other's.
//!
//! What a request drafts, and so how fast it is, then depends on texts of others. So nothing is shared unless a request
//! names a scope, and nothing between scopes.

use super::growth::TreeLimits;
use super::suffix::{LONGEST, Match, SEPARATOR, SHORTEST, Suffixes};
use super::tree::DraftTree;
use std::collections::{BTreeSet, HashMap, VecDeque};

/// Finished texts by scope. At most `most` tokens are kept, over all scopes; the oldest texts are forgotten first.
#[derive(Debug)]
pub(crate) struct SharedTexts {
    scopes: HashMap<String, Suffixes>,
    /// Scope and tokens of each text, the oldest first; a separator is counted to its text.
    texts: VecDeque<(String, usize)>,
    held: usize,
    most: usize,
}

impl SharedTexts {
    /// No texts, and at most `most` tokens of them; 0 keeps none.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            scopes: HashMap::new(),
            texts: VecDeque::new(),
            held: 0,
            most,
        }
    }

    /// Adds a text; of one that is too long, the end.
    pub(crate) fn learn(&mut self, scope: &str, text: &[u32]) {
        let kept = text.len().min(self.most.saturating_sub(1));
        if kept <= SHORTEST {
            return;
        }
        let scope_texts = self.scopes.entry(scope.to_owned());
        let suffixes = scope_texts.or_insert_with(|| Suffixes::bounded(usize::MAX));
        for token in text.iter().skip(text.len() - kept).chain([&SEPARATOR]) {
            suffixes.push(*token);
        }
        self.texts.push_back((scope.to_owned(), kept + 1));
        self.held += kept + 1;
        if self.held > self.most {
            self.evict();
        }
    }

    /// Tokens held, separators included.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Memory held, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.scopes.values().map(Suffixes::bytes).sum()
    }

    /// The longest ending of `tokens` that occurs in a text of the scope.
    pub(crate) fn find(&self, scope: &str, tokens: &[u32]) -> Option<Match> {
        self.scopes.get(scope)?.find_from_nothing(tail(tokens))
    }

    /// Up to `most` drafts after `tokens`: what followed their longest ending in a text of the scope.
    pub(crate) fn propose(&self, scope: &str, tokens: &[u32], most: usize) -> Vec<u32> {
        let found = self.find(scope, tokens);
        let copied = found.and_then(|found| Some(self.scopes.get(scope)?.copy(found, &[], most)));
        copied.unwrap_or_default()
    }

    /// A tree of such drafts, as [`Suffixes::propose_tree`] makes them.
    pub(crate) fn propose_tree(
        &self,
        scope: &str,
        tokens: &[u32],
        limits: TreeLimits,
    ) -> DraftTree {
        let suffixes = self.scopes.get(scope);
        suffixes.map_or(DraftTree::default(), |suffixes| {
            suffixes.tree_from_nothing(tail(tokens), limits)
        })
    }

    /// Forgets the oldest texts, a quarter of what may be held, so that what is left is not counted again for every text.
    fn evict(&mut self) {
        let mut forgotten: HashMap<String, usize> = HashMap::new();
        while self.held > self.most - self.most / 4 && self.texts.len() > 1 {
            let Some((scope, tokens)) = self.texts.pop_front() else {
                break;
            };
            self.held -= tokens;
            *forgotten.entry(scope).or_default() += tokens;
        }
        for (scope, tokens) in forgotten {
            if let Some(suffixes) = self.scopes.get_mut(&scope) {
                suffixes.forget(tokens);
            }
        }
        let left: BTreeSet<&str> = self.texts.iter().map(|(scope, _)| scope.as_str()).collect();
        self.scopes.retain(|scope, _| left.contains(scope.as_str()));
    }
}

fn tail(tokens: &[u32]) -> &[u32] {
    tokens
        .get(tokens.len().saturating_sub(LONGEST)..)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: TreeLimits = TreeLimits {
        nodes: 5,
        depth: 3,
        rows: 4,
    };

    #[test]
    fn a_scope_sees_its_own_texts_only() {
        let mut texts = SharedTexts::new(100);
        texts.learn("a", &[1, 2, 3, 4]);
        texts.learn("b", &[1, 2, 7, 8]);
        assert_eq!(texts.propose("a", &[9, 1, 2], 5), [3, 4]);
        assert_eq!(texts.propose("b", &[9, 1, 2], 5), [7, 8]);
        assert!(texts.propose("c", &[9, 1, 2], 5).is_empty());
        assert!(texts.propose_tree("c", &[9, 1, 2], LIMITS).is_empty());
        assert_eq!(texts.find("a", &[9, 1, 2]).unwrap().length, 2);
    }

    #[test]
    fn nothing_is_drafted_across_texts() {
        let mut texts = SharedTexts::new(100);
        texts.learn("a", &[1, 2, 3]);
        texts.learn("a", &[4, 1, 2]);
        texts.learn("a", &[5, 6, 7]);
        assert_eq!(texts.propose("a", &[9, 1, 2], 5), [3]);
        assert_eq!(
            texts.propose_tree("a", &[1, 2], LIMITS),
            DraftTree::chain([3])
        );
        assert_eq!(texts.propose("a", &[4, 1], 5), [2]);
        assert!(texts.propose("a", &[2, 4], 5).is_empty());
    }

    #[test]
    fn the_oldest_texts_are_forgotten() {
        let mut texts = SharedTexts::new(40);
        let text = |first: u32| [first, first + 1, first + 2, first + 3];
        for first in 0..50 {
            let scope = if first % 10 == 0 { "rare" } else { "often" };
            texts.learn(scope, &text(10 * first));
            assert!(texts.held() <= 40);
            assert!(texts.bytes() < 20_000);
            assert_eq!(
                texts.propose(scope, &text(10 * first)[..2], 9),
                text(10 * first)[2..]
            );
        }
        assert!(texts.propose("often", &text(10)[..2], 9).is_empty());
        assert!(!texts.propose("often", &text(480)[..2], 9).is_empty());
        texts.learn("often", &(1000..1100).collect::<Vec<_>>());
        assert_eq!(
            (texts.held(), texts.propose("often", &[1097, 1098], 9)),
            (40, vec![1099])
        );
        assert!(!texts.scopes.contains_key("rare"));
    }

    #[test]
    fn nothing_is_kept_where_nothing_may_be() {
        let mut texts = SharedTexts::new(0);
        texts.learn("a", &[1, 2, 3, 4]);
        assert_eq!((texts.held(), texts.bytes()), (0, 0));
    }
}
