//! The input of a multi-token-prediction head.

use pawl_models::MtpHead;

use super::norm::norm;
use crate::error::BuildError;
use crate::graph::ir::Dtype;
use crate::graph::{GraphBuilder, Value};
use crate::ops;
use crate::wiring::HeadOrder;

/// `fc([embedding_norm(embedded) | hidden_norm(hidden)])`, or the halves the other way round: a row per pair of token and
/// hidden row.
pub(crate) fn fuse_hidden(
    g: &mut GraphBuilder,
    (dtype, order): (Dtype, HeadOrder),
    head: &MtpHead,
    embedded: &Value,
    hidden: &Value,
) -> Result<Value, BuildError> {
    g.within("fuse", |g| {
        let embedded = norm(g, "embedding_norm", dtype, &head.embedding_norm, embedded)?;
        let hidden = norm(g, "hidden_norm", dtype, &head.hidden_norm, hidden)?;
        let (first, second) = match order {
            HeadOrder::EmbeddingFirst => (&embedded, &hidden),
            HeadOrder::HiddenFirst => (&hidden, &embedded),
        };
        let both = ops::concat_columns(g, "both", first, second)?;
        let weight = g.weight("fc.weight", dtype, &head.fc)?;
        ops::gemm(g, "fc", &both, &weight)
    })
}
