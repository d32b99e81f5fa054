//! Weights between tokens and rows: the embedding and the output projection.

use crate::contract::names;
use crate::error::BuildError;
use crate::graph::{GraphBuilder, Value};
use crate::plan::Plan;

/// The embedding, `[vocab_size, hidden_size]`.
pub(crate) fn embedding_table(g: &mut GraphBuilder, plan: &Plan<'_>) -> Result<Value, BuildError> {
    let weight = &plan.description.embedding;
    g.shared_weight(names::EMBEDDING, plan.dtype, weight, plan.head.is_some())
}

/// The output projection, `[vocab_size, hidden_size]`: the embedding itself in a tied model.
pub(crate) fn output_projection(
    g: &mut GraphBuilder,
    plan: &Plan<'_>,
    embedding: &Value,
) -> Result<Value, BuildError> {
    let Some(weight) = &plan.description.output else {
        return Ok(embedding.clone());
    };
    let shared = plan.head.is_some();
    g.shared_weight(names::OUTPUT_PROJECTION, plan.dtype, weight, shared)
}
