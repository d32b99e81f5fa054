//! Extents of one Gated DeltaNet layer and of its transitions.

use std::ops::Range;

/// Heads and head sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heads {
    /// Key (and query) heads.
    pub(crate) keys: usize,
    /// Value heads, a multiple of `keys`; value head `h` uses key head `h * keys / values`.
    pub(crate) values: usize,
    /// Elements of a key.
    pub(crate) key_dim: usize,
    /// Elements of a value.
    pub(crate) value_dim: usize,
}

impl Heads {
    /// Elements of one packed token, query | key | value.
    pub(crate) const fn packed(self) -> usize {
        2 * self.keys * self.key_dim + self.values * self.value_dim
    }

    /// Elements of the state of one row, `[values, value_dim, key_dim]`.
    pub(crate) const fn state(self) -> usize {
        self.values * self.head_state()
    }

    /// Elements of the state of one head.
    pub(crate) const fn head_state(self) -> usize {
        self.value_dim * self.key_dim
    }

    /// Key head of a value head.
    pub(crate) const fn key_head(self, value_head: usize) -> usize {
        value_head * self.keys / self.values
    }

    /// Where the parts of a transition are.
    pub(crate) const fn transition(self) -> Transition {
        self.transition_of(Decay::PerHead)
    }

    /// Where the parts of a transition of this decay are.
    pub(crate) const fn transition_of(self, decay: Decay) -> Transition {
        let decays = match decay {
            Decay::PerHead => 1,
            Decay::PerKey => self.key_dim,
        };
        Transition {
            heads: self,
            decays,
        }
    }
}

/// What decays by one factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decay {
    /// The state of a value head: what Pawl's own operator does.
    PerHead,
    /// The column of one key element in the state of a value head.
    PerKey,
}

/// One captured transition: decay `[values]`, or `[values, key_dim]` where each key element has its
/// own (already exponentiated), key `[keys, key_dim]` (of length 1), delta `[values, value_dim]`.
/// Replayed as `s = s * decay; s = s + key * delta`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transition {
    heads: Heads,
    /// Factors of one value head.
    decays: usize,
}

impl Transition {
    /// Elements.
    pub(crate) const fn width(self) -> usize {
        let Heads {
            keys,
            values,
            key_dim,
            value_dim,
        } = self.heads;
        values * self.decays + keys * key_dim + values * value_dim
    }

    /// Where the decay of a value head is: one factor, or one per key element.
    pub(crate) const fn decay(self, value_head: usize) -> Range<usize> {
        let start = value_head * self.decays;
        start..start + self.decays
    }

    /// Where a key is.
    pub(crate) const fn key(self, key_head: usize) -> Range<usize> {
        let start = self.heads.values * self.decays + key_head * self.heads.key_dim;
        start..start + self.heads.key_dim
    }

    /// Where the delta of a value head is.
    pub(crate) const fn delta(self, value_head: usize) -> Range<usize> {
        let keys = self.heads.keys * self.heads.key_dim;
        let decays = self.heads.values * self.decays;
        let start = decays + keys + value_head * self.heads.value_dim;
        start..start + self.heads.value_dim
    }
}
