//! The automaton: states, edges, and what is counted in them.

use super::LONGEST;
use std::collections::HashMap;

/// Endings whose occurrences are counted have at most this length: an ending that is looked up and one token.
const COUNTED: usize = LONGEST + 1;
const ROOT: u32 = 0;
const NONE: u32 = u32::MAX;

/// The suffix automaton of a text. A state stands for strings that end at the same places of the text; the longest has
/// `length` tokens, and `link` leads to the state of the longest that ends at more places.
///
/// Most states have one edge, which they hold themselves; further ones are in a list, and in a map by state and token.
#[derive(Clone, Debug)]
pub(super) struct Automaton {
    tokens: Vec<u32>,
    states: Vec<State>,
    edges: Vec<Edge>,
    by_token: HashMap<(u32, u32), u32>,
    /// The state of the whole text.
    last: u32,
    /// The state of its last [`COUNTED`] tokens.
    tail: Place,
}

#[derive(Clone, Copy, Debug)]
struct State {
    length: u32,
    link: u32,
    /// The first edge; no target where there is none.
    token: u32,
    target: u32,
    /// The latest of the further edges.
    more: u32,
    /// How often a string of up to [`COUNTED`] tokens of this state occurred, and where it ended last and the time before:
    /// the number of tokens up to there.
    count: u32,
    latest: u32,
    before: u32,
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    token: u32,
    target: u32,
    /// The edge of the same state that was added before.
    next: u32,
}

/// An ending: the last `length` tokens of the strings of a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    state: u32,
    pub(super) length: usize,
}

/// What followed an ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Continuation {
    pub(super) token: u32,
    /// How often.
    pub(super) count: u32,
    /// Tokens up to the latest time, the token included.
    pub(super) latest: u32,
}

impl State {
    fn new(length: u32, link: u32) -> Self {
        Self {
            length,
            link,
            token: 0,
            target: NONE,
            more: NONE,
            count: 0,
            latest: 0,
            before: 0,
        }
    }
}

impl Default for Automaton {
    fn default() -> Self {
        Self {
            tokens: Vec::new(),
            states: vec![State::new(0, NONE)],
            edges: Vec::new(),
            by_token: HashMap::new(),
            last: ROOT,
            tail: Place::default(),
        }
    }
}

impl Automaton {
    /// The text.
    pub(super) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Memory in bytes. A map holds an eighth more places than entries, each with a byte of its own.
    pub(super) fn bytes(&self) -> usize {
        let entry = size_of::<((u32, u32), u32)>() + 1;
        self.tokens.capacity() * size_of::<u32>()
            + self.states.capacity() * size_of::<State>()
            + self.edges.capacity() * size_of::<Edge>()
            + self.by_token.capacity() / 7 * 8 * entry
    }

    /// Adds a token (Blumer et al., "The smallest automaton recognizing the subwords of a text").
    pub(super) fn push(&mut self, token: u32) {
        self.tokens.push(token);
        let length = self.state(self.last).length + 1;
        let new = self.add(State::new(length, ROOT));
        let mut at = self.last;
        while at != NONE && self.edge(at, token).is_none() {
            self.set_edge(at, token, new);
            at = self.state(at).link;
        }
        if let Some(target) = self.edge(at, token) {
            let link = self.state_for_prefix(at, token, target);
            self.change(new, |state| state.link = link);
        }
        self.last = new;
        self.count(token, length);
    }

    /// The state of the strings of `at` with `token` behind: `target`, or the part of it that is not longer.
    fn state_for_prefix(&mut self, at: u32, token: u32, target: u32) -> u32 {
        let length = self.state(at).length + 1;
        if self.state(target).length == length {
            return target;
        }
        let part = self.add(State {
            length,
            ..self.state(target)
        });
        // The copied list would be shared, and a change in one state would show in the other.
        self.change(part, |state| state.more = NONE);
        let more: Vec<_> = self.more_edges(target).collect();
        for (token, to) in more.into_iter().rev() {
            self.set_edge(part, token, to);
        }
        self.change(target, |state| state.link = part);
        let mut from = at;
        while from != NONE && self.edge(from, token) == Some(target) {
            self.set_edge(from, token, part);
            from = self.state(from).link;
        }
        part
    }

    /// Counts the occurrence of every ending of up to [`COUNTED`] tokens.
    fn count(&mut self, token: u32, end: u32) {
        // A split can leave the tail in the longer part only where the text ends in a run of one token; both parts have the
        // same edge for it.
        self.tail = self.step(self.tail, token, COUNTED).unwrap_or_default();
        let mut at = self.tail.state;
        while at != ROOT && at != NONE {
            self.change(at, |state| {
                state.count += 1;
                state.before = state.latest;
                state.latest = end;
            });
            at = self.state(at).link;
        }
    }

    /// The end of the text, as far back as endings are looked up.
    pub(super) fn end(&self) -> Place {
        self.shortened(self.tail, LONGEST)
    }

    /// The longest ending of a place and the tokens after it that occurs in the text.
    pub(super) fn follow(&self, mut place: Place, tokens: &[u32]) -> Place {
        for token in tokens {
            place = loop {
                if let Some(next) = self.step(place, *token, LONGEST) {
                    break next;
                }
                match self.shorter(place) {
                    Some(shorter) => place = shorter,
                    None => break Place::default(),
                }
            };
        }
        place
    }

    /// The longest ending of a place that occurs elsewhere too; `None` for the empty one.
    pub(super) fn shorter(&self, place: Place) -> Option<Place> {
        let state = self.states.get(self.state(place.state).link as usize)?;
        Some(Place {
            state: self.state(place.state).link,
            length: state.length as usize,
        })
    }

    /// Where the token stands that followed the latest occurrence of an ending, the one at the end of the text left out.
    pub(super) fn next_after(&self, place: Place) -> Option<usize> {
        let state = self.state(place.state);
        let at_end = state.latest as usize == self.tokens.len();
        let end = if at_end { state.before } else { state.latest };
        (end > 0).then_some(end as usize)
    }

    /// What followed an ending, the first that was seen, then the others, the latest to appear first.
    pub(super) fn continuations(&self, place: Place) -> impl Iterator<Item = Continuation> + '_ {
        let state = self.state(place.state);
        let first = (state.target != NONE).then_some((state.token, state.target));
        let edges = first.into_iter().chain(self.more_edges(place.state));
        edges.map(|(token, target)| {
            let target = self.state(target);
            Continuation {
                token,
                count: target.count,
                latest: target.latest,
            }
        })
    }

    /// The ending with a token behind, cut to `most` tokens.
    fn step(&self, place: Place, token: u32, most: usize) -> Option<Place> {
        let state = self.edge(place.state, token)?;
        let length = place.length + 1;
        Some(self.shortened(Place { state, length }, most))
    }

    /// The last `most` tokens of an ending.
    fn shortened(&self, mut place: Place, most: usize) -> Place {
        place.length = place.length.min(most);
        while let Some(shorter) = self.shorter(place).filter(|s| s.length >= place.length) {
            place.state = shorter.state;
        }
        place
    }

    fn state(&self, index: u32) -> State {
        self.states
            .get(index as usize)
            .copied()
            .unwrap_or(State::new(0, NONE))
    }

    fn change(&mut self, index: u32, change: impl FnOnce(&mut State)) {
        if let Some(state) = self.states.get_mut(index as usize) {
            change(state);
        }
    }

    fn add(&mut self, state: State) -> u32 {
        self.states.push(state);
        u32::try_from(self.states.len() - 1).unwrap_or(NONE)
    }

    fn edge(&self, from: u32, token: u32) -> Option<u32> {
        let state = self.states.get(from as usize)?;
        if state.token == token && state.target != NONE {
            return Some(state.target);
        }
        if state.more == NONE {
            return None;
        }
        let edge = *self.by_token.get(&(from, token))?;
        self.edges.get(edge as usize).map(|edge| edge.target)
    }

    fn set_edge(&mut self, from: u32, token: u32, target: u32) {
        let state = self.state(from);
        if state.target == NONE || state.token == token {
            self.change(from, |state| (state.token, state.target) = (token, target));
        } else if let Some(edge) = self.by_token.get(&(from, token)) {
            if let Some(edge) = self.edges.get_mut(*edge as usize) {
                edge.target = target;
            }
        } else {
            let edge = u32::try_from(self.edges.len()).unwrap_or(NONE);
            let next = state.more;
            self.edges.push(Edge {
                token,
                target,
                next,
            });
            self.by_token.insert((from, token), edge);
            self.change(from, |state| state.more = edge);
        }
    }

    fn more_edges(&self, state: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let edge = |index: u32| self.edges.get(index as usize);
        let edges = std::iter::successors(edge(self.state(state).more), move |e| edge(e.next));
        edges.map(|edge| (edge.token, edge.target))
    }
}
