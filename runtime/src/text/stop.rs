//! Stop strings in a stream of text.

use std::collections::HashMap;

/// A set of stop strings, compiled once and shared by clones of a request.
///
/// The automaton of Aho and Corasick over bytes. Its state after a text stands for the longest end of
/// the text that begins some stop string, which is exactly what must be held back.
#[derive(Debug, Default)]
pub(crate) struct StopSet {
    nodes: Vec<Node>,
    edges: HashMap<(u32, u8), u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// Node of the longest proper end that begins a stop string.
    fallback: u32,
    /// Length of the beginning that the node stands for.
    depth: usize,
    /// Length of the longest stop string that ends here; 0 for none.
    matched: usize,
}

/// Progress through one text. Cheap to clone: the held text is shorter than the longest stop string.
#[derive(Clone, Debug, Default)]
pub(crate) struct StopState {
    node: u32,
    held: String,
}

/// What a piece of text led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StopMatch {
    /// No stop string so far.
    None,
    /// This stop string; all text before it has been given out, nothing of it or after it has.
    Found(String),
}

impl StopSet {
    /// Compiles stop strings; empty ones are ignored.
    pub(crate) fn new<S: AsRef<str>>(stops: &[S]) -> StopSet {
        let mut set = StopSet {
            nodes: vec![Node::default()],
            edges: HashMap::new(),
        };
        for stop in stops {
            set.insert(stop.as_ref().as_bytes());
        }
        set.link();
        set
    }

    /// Whether there is nothing to stop at.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.len() <= 1
    }

    fn insert(&mut self, stop: &[u8]) {
        let mut node = 0;
        for (depth, &byte) in (1..).zip(stop) {
            let next = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
            let edge = self.edges.entry((node, byte));
            node = *edge.or_insert_with(|| {
                self.nodes.push(Node {
                    fallback: 0,
                    depth,
                    matched: 0,
                });
                next
            });
        }
        if let Some(end) = self.nodes.get_mut(node as usize) {
            end.matched = stop.len();
        }
    }

    /// Sets fallbacks, shallow nodes first, and lets matches shine through them.
    fn link(&mut self) {
        let mut edges: Vec<(u32, u8, u32)> = self
            .edges
            .iter()
            .map(|(&(from, byte), &to)| (from, byte, to))
            .collect();
        edges.sort_unstable_by_key(|&(from, byte, _)| (self.node(from).depth, from, byte));
        for (from, byte, to) in edges {
            let fallback = if from == 0 {
                0
            } else {
                self.step(self.node(from).fallback, byte)
            };
            let shorter = self.node(fallback).matched;
            if let Some(node) = self.nodes.get_mut(to as usize) {
                node.fallback = fallback;
                node.matched = node.matched.max(shorter);
            }
        }
    }

    fn node(&self, index: u32) -> Node {
        self.nodes.get(index as usize).copied().unwrap_or_default()
    }

    fn step(&self, mut node: u32, byte: u8) -> u32 {
        loop {
            match self.edges.get(&(node, byte)) {
                Some(&next) => return next,
                None if node == 0 => return 0,
                None => node = self.node(node).fallback,
            }
        }
    }
}

impl StopState {
    /// Reads `text` and appends to `out` what cannot become part of a stop string any more.
    ///
    /// The first stop string to be complete wins; of several that end at the same byte, the longest.
    /// That makes the result independent of how the text is cut into pieces.
    pub(crate) fn push(&mut self, set: &StopSet, text: &str, out: &mut String) -> StopMatch {
        if set.is_empty() {
            out.push_str(text);
            return StopMatch::None;
        }
        let seen = self.held.len();
        self.held.push_str(text);
        for (end, byte) in (seen + 1..).zip(text.bytes()) {
            self.node = set.step(self.node, byte);
            let matched = set.node(self.node).matched;
            if matched > 0 {
                let stop = self.take(end - matched, out);
                self.node = 0;
                return StopMatch::Found(stop.get(..matched).unwrap_or_default().to_owned());
            }
        }
        let safe = self.held.len() - set.node(self.node).depth;
        self.held = self.take(safe, out);
        StopMatch::None
    }

    /// Appends what was held back; the text ends here.
    pub(crate) fn flush(&mut self, out: &mut String) {
        out.push_str(&self.held);
        *self = StopState::default();
    }

    /// Gives out the held text up to `end` and returns the rest.
    fn take(&mut self, end: usize, out: &mut String) -> String {
        let held = std::mem::take(&mut self.held);
        let (before, after) = held.split_at_checked(end).unwrap_or((held.as_str(), ""));
        out.push_str(before);
        after.to_owned()
    }
}
