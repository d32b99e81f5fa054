//! Attention over the paged cache.

use pawl_models::{Attention, Norm};

use super::projection::project;
use super::{LayerContext, stack, state};
use crate::contract::names;
use crate::error::BuildError;
use crate::graph::{GraphBuilder, Value};
use crate::ops::{self, AttentionNode};

/// One projection for query, key, value and gate; attention; the gate; the output projection.
pub(crate) fn attention(
    g: &mut GraphBuilder,
    cx: &LayerContext<'_>,
    mixer: &Attention,
    x: &Value,
) -> Result<Value, BuildError> {
    g.within("attention", |g| {
        let (qkv, gate) = inputs(g, cx, mixer, x)?;
        let attended = attend(g, cx, mixer, &qkv)?;
        let mixed = match gate {
            Some(gate) => {
                let gate = ops::sigmoid(g, "gate", &gate)?;
                ops::mul(g, "gated", &attended, &gate)?
            }
            None => attended,
        };
        project(g, cx, "output", &mixed, &mixer.output)
    })
}

/// Query | key | value, and the gate.
fn inputs(
    g: &mut GraphBuilder,
    cx: &LayerContext<'_>,
    mixer: &Attention,
    x: &Value,
) -> Result<(Value, Option<Value>), BuildError> {
    let mut weights = vec![&mixer.query, &mixer.key, &mixer.value];
    weights.extend(&mixer.gate);
    let weight = stack(g, "input", &weights)?;
    let projected = project(g, cx, "input", x, &weight)?;
    let Some(gate) = &mixer.gate else {
        return Ok((projected, None));
    };
    let heads = [&mixer.query, &mixer.key, &mixer.value];
    let width = heads
        .iter()
        .fold(0_u64, |sum, weight| sum.saturating_add(weight.rows()));
    let parts = [("qkv", width), ("gate", gate.rows())];
    let [qkv, gate] = ops::split_columns(g, "split", &projected, parts)?;
    Ok((qkv, Some(gate)))
}

/// The attention itself with its cache.
fn attend(
    g: &mut GraphBuilder,
    cx: &LayerContext<'_>,
    mixer: &Attention,
    qkv: &Value,
) -> Result<Value, BuildError> {
    let (kv_heads, head_dim) = (mixer.kv_heads, mixer.head_dim);
    let key_cache = state::cache_input(g, cx, names::KEY, kv_heads, head_dim)?;
    let value_cache = state::cache_input(g, cx, names::VALUE, kv_heads, head_dim)?;
    let norm_epsilon = common_epsilon(cx, mixer)?;
    let mut head_norm = |name, norm: &Option<Norm>| {
        norm.as_ref()
            .map(|norm| g.weight(name, cx.plan.dtype, &norm.weight))
            .transpose()
    };
    let query_norm = head_norm("query_norm.weight", &mixer.query_norm)?;
    let key_norm = head_norm("key_norm.weight", &mixer.key_norm)?;
    let node = AttentionNode {
        qkv,
        key_cache: &key_cache,
        value_cache: &value_cache,
        cumulative_lengths: &cx.step.cumulative_lengths,
        past_lengths: &cx.step.past_lengths,
        block_table: &cx.step.block_table,
        rotation: cx.rotations.of(&mixer.rope),
        query_norm: query_norm.as_ref(),
        key_norm: key_norm.as_ref(),
        norm_epsilon,
        heads: mixer.heads,
        kv_heads,
        head_dim,
        scale: mixer.scale,
    };
    let values = (cx.plan.target.paged_attention)(g, "attend", &node)?;
    state::cache_output(g, cx, names::KEY, &values.key_cache);
    state::cache_output(g, cx, names::VALUE, &values.value_cache);
    Ok(values.output)
}

/// The operators take one epsilon for both norms.
fn common_epsilon(cx: &LayerContext<'_>, mixer: &Attention) -> Result<f32, BuildError> {
    let query = mixer.query_norm.as_ref().map(|norm| norm.epsilon);
    let key = mixer.key_norm.as_ref().map(|norm| norm.epsilon);
    match (query, key) {
        (Some(query), Some(key)) if query.to_bits() != key.to_bits() => {
            Err(BuildError::Unsupported {
                part: format!("layer {}: norms of query and key", cx.index),
                reason: format!("their epsilons must be equal, found {query} and {key}"),
            })
        }
        _ => Ok(query.or(key).unwrap_or_default()),
    }
}
