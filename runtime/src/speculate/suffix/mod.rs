//! Drafts by lookup: what followed when the text ended like this before.

mod automaton;
#[cfg(test)]
mod tests;

use super::growth::{Growth, TreeLimits};
use super::tree::DraftTree;
use automaton::{Automaton, Place};

/// Longest ending that is looked up. Longer ones say little more.
pub(crate) const LONGEST: usize = 32;
/// Shortest ending that is looked up.
pub(crate) const SHORTEST: usize = 2;
/// A token that is in no vocabulary: nothing is drafted across it.
pub(crate) const SEPARATOR: u32 = u32::MAX;

/// Tokens that are remembered at most; the older half is forgotten when there are more.
const MOST_TOKENS: usize = 1 << 18;
/// Continuations of one ending that are considered, at most: the first that was seen and the latest to appear.
const MOST_CONTINUATIONS: usize = 64;
/// How many ever shorter endings are asked for continuations.
const ENDINGS: usize = 3;

/// All endings of the prefixes of a text, and where each occurred last: a suffix automaton.
///
/// Adding a token takes constant time on average, a proposal a time that does not depend on the length of the text.
#[derive(Clone, Debug)]
pub(crate) struct Suffixes {
    automaton: Automaton,
    /// Tokens that were forgotten.
    forgotten: usize,
    most: usize,
}

/// An ending of the text that occurred before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Match {
    /// Its tokens, [`SHORTEST`] to [`LONGEST`]: the more, the likelier that what followed follows again.
    pub(crate) length: usize,
    /// Where in the remembered text the token stands that followed its latest occurrence.
    next: usize,
}

impl Default for Suffixes {
    fn default() -> Self {
        Self::bounded(MOST_TOKENS)
    }
}

impl Suffixes {
    /// Nothing yet; at most `most` tokens are remembered.
    pub(crate) fn bounded(most: usize) -> Self {
        Self {
            automaton: Automaton::default(),
            forgotten: 0,
            most: most.max(2),
        }
    }

    /// Adds the token after those added so far.
    pub(crate) fn push(&mut self, token: u32) {
        let held = self.automaton.tokens().len();
        if held >= self.most {
            self.forget(held - self.most / 2);
        }
        self.automaton.push(token);
    }

    /// Forgets the first `count` tokens that are still remembered.
    pub(crate) fn forget(&mut self, count: usize) {
        let kept = self.automaton.tokens().get(count..).unwrap_or_default();
        let mut rebuilt = Automaton::default();
        for token in kept {
            rebuilt.push(*token);
        }
        self.forgotten += self.automaton.tokens().len() - kept.len();
        self.automaton = rebuilt;
    }

    /// Tokens added so far, forgotten ones included: the next to add is the one with this index in its text.
    pub(crate) fn len(&self) -> usize {
        self.forgotten + self.automaton.tokens().len()
    }

    /// Memory that it holds, in bytes: about 80 for each remembered token.
    pub(crate) fn bytes(&self) -> usize {
        self.automaton.bytes()
    }

    /// The longest ending of the tokens followed by `fresh` that occurred before with a token after it. `fresh` is not
    /// added, and only looked up, never found.
    pub(crate) fn find(&self, fresh: &[u32]) -> Option<Match> {
        let place = self.automaton.follow(self.automaton.end(), fresh);
        let mut endings = self.endings(place);
        let (place, next) = endings.next()?;
        Some(Match {
            length: place.length,
            next,
        })
    }

    /// The same for tokens that are not those added.
    pub(crate) fn find_from_nothing(&self, tokens: &[u32]) -> Option<Match> {
        let tail = tokens.get(tokens.len().saturating_sub(LONGEST)..);
        let place = self
            .automaton
            .follow(Place::default(), tail.unwrap_or_default());
        let (place, next) = self.endings(place).next()?;
        Some(Match {
            length: place.length,
            next,
        })
    }

    /// Up to `most` drafts after the tokens followed by `fresh`: what followed the latest occurrence of the longest ending.
    /// Where the text ends, its continuation is what is being drafted, so a period goes on.
    pub(crate) fn propose(&self, fresh: &[u32], most: usize) -> Vec<u32> {
        self.find(fresh)
            .map_or(Vec::new(), |found| self.copy(found, fresh, most))
    }

    /// Up to `most` tokens from a match on, with `fresh` after the text.
    pub(crate) fn copy(&self, found: Match, fresh: &[u32], most: usize) -> Vec<u32> {
        let text = self.automaton.tokens();
        let mut drafts = Vec::with_capacity(most);
        for index in (found.next..).take(most) {
            let beyond = index.saturating_sub(text.len());
            let known = text.get(index).or_else(|| fresh.get(beyond));
            let token = known.or_else(|| drafts.get(beyond.saturating_sub(fresh.len())));
            match token.copied().filter(|token| *token != SEPARATOR) {
                Some(token) => drafts.push(token),
                None => break,
            }
        }
        drafts
    }

    /// A tree within limits: the likeliest continuations by how often each followed
    /// the longest endings. Of equally frequent ones, the latest comes first.
    pub(crate) fn propose_tree(&self, fresh: &[u32], limits: TreeLimits) -> DraftTree {
        self.grow(self.automaton.follow(self.automaton.end(), fresh), limits)
    }

    /// The same for tokens that are not those added.
    pub(crate) fn tree_from_nothing(&self, tokens: &[u32], limits: TreeLimits) -> DraftTree {
        let tail = tokens.get(tokens.len().saturating_sub(LONGEST)..);
        let place = self
            .automaton
            .follow(Place::default(), tail.unwrap_or_default());
        self.grow(place, limits)
    }

    fn grow(&self, root: Place, limits: TreeLimits) -> DraftTree {
        let mut growth = Growth::new(limits);
        growth.offer(None, &self.candidates(root));
        while let Some(node) = growth.to_expand(1).first() {
            let place = self.automaton.follow(root, &growth.path(node.index));
            growth.offer(Some(node.index), &self.candidates(place));
        }
        growth.finish()
    }

    /// Tokens after a place with the logarithms of their chances. An ending that occurred `n` times leaves `1 / (n + 1)` to
    /// the continuations of shorter endings, as prediction by partial matching does: less than it gives to any of its own.
    fn candidates(&self, place: Place) -> Vec<(u32, f32)> {
        let mut found: Vec<(u32, f32)> = Vec::new();
        let mut left = 1.0_f32;
        for (place, _) in self.endings(place).take(ENDINGS) {
            let next = self.automaton.continuations(place);
            let mut next: Vec<_> = next.take(MOST_CONTINUATIONS).collect();
            next.retain(|next| {
                next.token != SEPARATOR && found.iter().all(|(token, _)| *token != next.token)
            });
            next.sort_by_key(|next| std::cmp::Reverse((next.count, next.latest)));
            let all = next.iter().map(|next| next.count).sum::<u32>() as f32 + 1.0;
            let chance = |count: u32| (left * count as f32 / all).ln();
            found.extend(next.iter().map(|next| (next.token, chance(next.count))));
            left /= all;
        }
        found
    }

    /// The endings at a place that have a continuation, the longest first, each with where its latest one stands.
    fn endings(&self, place: Place) -> impl Iterator<Item = (Place, usize)> + '_ {
        let shorter = |place: &Place| self.automaton.shorter(*place);
        let all = std::iter::successors(Some(place), shorter);
        let long = all.take_while(|place| place.length >= SHORTEST);
        long.filter_map(|place| Some((place, self.next_after(place)?)))
    }

    /// Where the token stands that followed the latest occurrence of an ending, or a late one where the latest was at the
    /// end of a text.
    fn next_after(&self, place: Place) -> Option<usize> {
        let next = self.automaton.next_after(place)?;
        if self.automaton.tokens().get(next) != Some(&SEPARATOR) {
            return Some(next);
        }
        let others = self.automaton.continuations(place).take(MOST_CONTINUATIONS);
        let others = others.filter(|next| next.token != SEPARATOR);
        others.map(|next| next.latest as usize - 1).max()
    }
}
