//! `com.microsoft::PagedAttention`.

use crate::error::BuildError;
use crate::graph::ir::Attribute;
use crate::graph::{GraphBuilder, Operator, Output};
use crate::ops::{AttentionNode, AttentionValues};

/// Attention in 16 bits over a paged cache; cosines and sines are per position,
/// `[positions, rotary_dim / 2]`, and the operator finds the position of a token by itself.
pub(crate) fn paged_attention(
    g: &mut GraphBuilder,
    name: &str,
    node: &AttentionNode<'_>,
) -> Result<AttentionValues, BuildError> {
    let check = g.check(name);
    let dtype = node.qkv.dtype();
    let (tokens, columns) = node.check(&check, dtype)?;
    if node.query_norm.is_some() != node.key_norm.is_some() {
        return Err(check.defect("q_norm_weight", "a norm of query and key", "one of them"));
    }
    if let Some((cos, _)) = node.rotation {
        check.dtype("cos_cache", cos, dtype)?;
    }
    let mut attributes = node.attributes(&check)?;
    if node.rotation.is_some() {
        attributes.push(("do_rotary", Attribute::Int(1)));
    }
    let operator = Operator {
        domain: super::DOMAIN,
        op_type: "PagedAttention",
        name,
        inputs: vec![
            Some(node.qkv),
            None,
            None,
            Some(node.key_cache),
            Some(node.value_cache),
            Some(node.cumulative_lengths),
            Some(node.past_lengths),
            Some(node.block_table),
            node.rotation.map(|(cos, _)| cos),
            node.rotation.map(|(_, sin)| sin),
            None,
            None,
            node.query_norm,
            node.key_norm,
        ],
        attributes,
    };
    let cache = node.key_cache;
    let [output, key_cache, value_cache] = g.node(
        operator,
        [
            Output::main(dtype, [tokens, columns.into()]),
            Output::named("key", cache.dtype(), cache.dims()),
            Output::named("value", cache.dtype(), cache.dims()),
        ],
    )?;
    Ok(AttentionValues {
        output,
        key_cache,
        value_cache,
    })
}
