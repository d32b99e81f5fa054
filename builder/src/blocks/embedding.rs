//! Weights between tokens and rows: the embedding and the output projection.

use super::{Precision, Projection};
use crate::contract::names;
use crate::error::BuildError;
use crate::graph::{GraphBuilder, Value};
use crate::plan::Plan;

/// The embedding, `[vocab_size, hidden_size]`.
pub(crate) fn embedding_table(g: &mut GraphBuilder, plan: &Plan<'_>) -> Result<Value, BuildError> {
    let weight = &plan.description.embedding;
    g.shared_weight(names::EMBEDDING, plan.dtype, weight, plan.head.is_some())
}

/// The output projection, `[vocab_size, hidden_size]`: the embedding itself in a tied model, unless it is quantised, which
/// the table that tokens are looked up in is not.
pub(crate) fn output_projection(
    g: &mut GraphBuilder,
    plan: &Plan<'_>,
    precision: Precision,
    embedding: &Value,
) -> Result<Projection, BuildError> {
    let own = plan.description.output.as_ref();
    let weight = own.unwrap_or(&plan.description.embedding);
    if precision.quantizes(weight) {
        return g.within("lm_head", |g| precision.weights(g, "logits", weight));
    }
    if own.is_none() {
        return Ok(Projection::Whole(embedding.clone()));
    }
    let shared = plan.head.is_some() && !plan.head_precision().quantizes(weight);
    let name = names::OUTPUT_PROJECTION;
    let value = g.shared_weight(name, plan.dtype, weight, shared)?;
    Ok(Projection::Whole(value))
}
