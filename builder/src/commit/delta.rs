//! Transitions of Gated DeltaNet: decay, key and delta of every token.

use genai_config_schema::StateDecay;

use super::{Replay, Rows, Subject, positions};
use crate::error::BuildError;
use crate::graph::ir::Dtype;
use crate::graph::{GraphBuilder, Value};
use crate::ops;

/// Extents of the operator.
#[derive(Clone, Copy, Debug)]
struct Extents {
    capacity: u64,
    key_heads: u64,
    value_heads: u64,
    /// Value heads that use one key head.
    group: u64,
    value_dim: u64,
    key_dim: u64,
    decay: StateDecay,
}

impl Extents {
    fn new(g: &GraphBuilder, subject: &Subject, rows: &Rows) -> Result<Self, BuildError> {
        let check = g.check("replay");
        let [_, value_heads, value_dim, key_dim] = check.rank("bank", &rows.bank)?;
        let value_heads = check.extent("value heads", value_heads)?;
        let key_heads = u64::from(subject.kind.key_heads.unwrap_or(0));
        let group = value_heads.checked_div(key_heads).unwrap_or(0);
        check.equal("value heads", group.saturating_mul(key_heads), value_heads)?;
        Ok(Self {
            capacity: subject.capacity,
            key_heads,
            value_heads,
            group,
            value_dim: check.extent("value width", value_dim)?,
            key_dim: check.extent("key width", key_dim)?,
            decay: subject.decay,
        })
    }

    /// Decay factors of one token.
    fn decays(self) -> u64 {
        match self.decay {
            StateDecay::PerHead => self.value_heads,
            StateDecay::PerKey => self.value_heads.saturating_mul(self.key_dim),
        }
    }

    /// Elements of all keys of one token.
    fn keys(self) -> u64 {
        self.key_heads.saturating_mul(self.key_dim)
    }

    /// Elements of all deltas of one token.
    fn deltas(self) -> u64 {
        self.value_heads.saturating_mul(self.value_dim)
    }
}

/// The recurrent states after the kept tokens, `[commits, value_heads, value_dim, key_dim]`.
///
/// A transition is `s = s * decay; s = s + key * delta`. Over all kept ones, the state before the step is decayed by the
/// product of all decays, and what token `t` adds by the product of those after `t`:
///
/// ```text
/// s = s * d0 d1 d2  +  key0 * delta0 * d1 d2  +  key1 * delta1 * d2  +  key2 * delta2
/// ```
///
/// The sum over tokens is one product of matrices per head, deltas by tokens times tokens by keys.
pub(super) fn replay(
    g: &mut GraphBuilder,
    subject: &Subject,
    rows: &Rows,
) -> Result<Value, BuildError> {
    let x = Extents::new(g, subject, rows)?;
    let width = x
        .decays()
        .saturating_add(x.keys())
        .saturating_add(x.deltas());
    let shape = [x.capacity.saturating_mul(width)];
    let Replay {
        before,
        transitions,
        kept,
    } = Replay::declare(g, subject, rows, &shape)?;
    let part = |width: u64| x.capacity.saturating_mul(width);
    let parts = [
        ("decay", part(x.decays())),
        ("key", part(x.keys())),
        ("delta", part(x.deltas())),
    ];
    let [decay, key, delta] = ops::split_columns(g, "parts", &transitions, parts)?;

    let one = scalar(g, "one", 1.0)?;
    let zero = scalar(g, "zero", 0.0)?;
    let suffixes = suffix_products(g, x, &decay, &kept, &one)?;
    let tokens = positions(g, "tokens", x.capacity)?;
    let used = ops::less(g, "used", &tokens, &kept)?;
    let kept_only = |g: &mut GraphBuilder, name: &str, part: &Value, width: u64| {
        g.within(name, |g| {
            let part = ops::reshape_rows(g, "by_token", part, &[x.capacity, width])?;
            ops::choose(g, "kept", &used, &part, &zero)
        })
    };
    let key = kept_only(g, "key", &key, x.keys())?;
    let delta = kept_only(g, "delta", &delta, x.deltas())?;

    let total = ops::gather_columns(g, "total", &suffixes, &[0])?;
    let after: Vec<u64> = (1..=x.capacity).collect();
    let after = ops::gather_columns(g, "after", &suffixes, &after)?;
    let added = match x.decay {
        StateDecay::PerHead => added_per_head(g, x, &after, &key, &delta)?,
        StateDecay::PerKey => added_per_key(g, x, &after, &key, &delta)?,
    };
    let columns = x.decays().checked_div(x.value_heads).unwrap_or(0);
    let total = ops::reshape_rows(g, "total_by_head", &total, &[x.value_heads, 1, columns])?;
    let remains = ops::mul(g, "remains", &before, &total)?;
    ops::add(g, "states", &remains, &added)
}

/// Products of the kept decays from each token on, and 1 at the end: `[commits, capacity + 1, decays]`.
///
/// Entry `s` of the first list is the decay of token `s` if that is kept, else 1. Each round multiplies an entry by the
/// one `reach` further on, so that it covers twice as many tokens; the last entry is 1 and stands for all beyond it.
fn suffix_products(
    g: &mut GraphBuilder,
    x: Extents,
    decay: &Value,
    kept: &Value,
    one: &Value,
) -> Result<Value, BuildError> {
    g.within("suffix_products", |g| {
        let last = x.capacity.saturating_sub(1);
        let decay = ops::reshape_rows(g, "by_token", decay, &[x.capacity, x.decays()])?;
        // What stands after the last token is never kept, so any of the decays will do.
        let entries: Vec<u64> = (0..=x.capacity).map(|s| s.min(last)).collect();
        let decay = ops::gather_columns(g, "and_one_more", &decay, &entries)?;
        let tokens = positions(g, "tokens", x.capacity.saturating_add(1))?;
        let used = ops::less(g, "used", &tokens, kept)?;
        let mut products = ops::choose(g, "kept", &used, &decay, one)?;
        let mut reach = 1;
        while reach < x.capacity {
            let further: Vec<u64> = (0..=x.capacity)
                .map(|s| s.saturating_add(reach).min(x.capacity))
                .collect();
            products = g.within(&format!("reach_{reach}"), |g| {
                let further = ops::gather_columns(g, "further", &products, &further)?;
                ops::mul(g, "product", &products, &further)
            })?;
            reach = reach.saturating_mul(2);
        }
        Ok(products)
    })
}

/// What the tokens add where a head decays by one factor: it goes with the deltas. Value heads of one key head are one
/// matrix.
fn added_per_head(
    g: &mut GraphBuilder,
    x: Extents,
    after: &Value,
    key: &Value,
    delta: &Value,
) -> Result<Value, BuildError> {
    g.within("added", |g| {
        let by_head = [x.capacity, x.value_heads, x.value_dim];
        let delta = ops::reshape_rows(g, "delta", delta, &by_head)?;
        let after = ops::reshape_rows(g, "after", after, &[x.capacity, x.value_heads, 1])?;
        let delta = ops::mul(g, "decayed", &delta, &after)?;
        let height = x.group.saturating_mul(x.value_dim);
        let delta = ops::reshape_rows(g, "groups", &delta, &[x.capacity, x.key_heads, height])?;
        let key = ops::reshape_rows(g, "key", key, &[x.capacity, x.key_heads, x.key_dim])?;
        products(g, x, &delta, &key)
    })
}

/// What the tokens add where each key element decays by a factor of its own, another per value head: it goes with the
/// keys, of which every value head then has one.
fn added_per_key(
    g: &mut GraphBuilder,
    x: Extents,
    after: &Value,
    key: &Value,
    delta: &Value,
) -> Result<Value, BuildError> {
    g.within("added", |g| {
        let by_group = [x.capacity, x.key_heads, x.group, x.key_dim];
        let after = ops::reshape_rows(g, "after", after, &by_group)?;
        let shared = [x.capacity, x.key_heads, 1, x.key_dim];
        let key = ops::reshape_rows(g, "key", key, &shared)?;
        let key = ops::mul(g, "decayed", &key, &after)?;
        let by_head = [x.capacity, x.value_heads, x.key_dim];
        let key = ops::reshape_rows(g, "heads", &key, &by_head)?;
        let by_head = [x.capacity, x.value_heads, x.value_dim];
        let delta = ops::reshape_rows(g, "delta", delta, &by_head)?;
        products(g, x, &delta, &key)
    })
}

/// `[n, tokens, groups, values]` and `[n, tokens, groups, key_dim]` to `[n, value_heads, value_dim, key_dim]`.
fn products(
    g: &mut GraphBuilder,
    x: Extents,
    delta: &Value,
    key: &Value,
) -> Result<Value, BuildError> {
    let delta = ops::transpose(g, "delta_columns", delta, [0, 2, 3, 1])?;
    let key = ops::transpose(g, "key_rows", key, [0, 2, 1, 3])?;
    let added = ops::matmul(g, "product", &delta, &key)?;
    let by_head = [x.value_heads, x.value_dim, x.key_dim];
    ops::reshape_rows(g, "by_head", &added, &by_head)
}

/// `f32 [1, 1, 1]`.
fn scalar(g: &mut GraphBuilder, name: &str, value: f32) -> Result<Value, BuildError> {
    g.constant(name, Dtype::F32, &[1, 1, 1], value.to_le_bytes().to_vec())
}
