//! `pawl::PagedAttention`.

use crate::error::BuildError;
use crate::graph::ir::Dtype;
use crate::graph::{GraphBuilder, Operator, Output};
use crate::ops::{AttentionNode, AttentionValues};

/// Attention in float32 over a paged cache; cosines and sines are per token, `[T, rotary_dim / 2]`.
pub(crate) fn paged_attention(
    g: &mut GraphBuilder,
    name: &str,
    node: &AttentionNode<'_>,
) -> Result<AttentionValues, BuildError> {
    let check = g.check(name);
    let (tokens, columns) = node.check(&check, Dtype::F32)?;
    if let Some((cos, _)) = node.rotation {
        let (rows, _) = check.rows("cos", cos)?;
        check.equal("rows of cos", tokens, rows)?;
    }
    let operator = Operator {
        domain: super::DOMAIN,
        op_type: "PagedAttention",
        name,
        inputs: vec![
            Some(node.qkv),
            Some(node.key_cache),
            Some(node.value_cache),
            Some(node.cumulative_lengths),
            Some(node.past_lengths),
            Some(node.block_table),
            node.rotation.map(|(cos, _)| cos),
            node.rotation.map(|(_, sin)| sin),
            node.query_norm,
            node.key_norm,
        ],
        attributes: node.attributes(&check)?,
    };
    let cache = node.key_cache;
    let [output, key_cache, value_cache] = g.node(
        operator,
        [
            Output::main(Dtype::F32, [tokens, columns.into()]),
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
