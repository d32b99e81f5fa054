//! The input of a multi-token-prediction head.

use pawl_models::MtpHead;

use super::norm::norm;
use crate::error::BuildError;
use crate::graph::{GraphBuilder, Value};
use crate::ops;
use crate::plan::Plan;
use crate::wiring::HeadOrder;

/// `fc([embedding_norm(embedded) | hidden_norm(hidden)])`, or the halves the other way round: a row per pair of token and
/// hidden row.
pub(crate) fn fuse_hidden(
    g: &mut GraphBuilder,
    plan: &Plan<'_>,
    head: &MtpHead,
    embedded: &Value,
    hidden: &Value,
) -> Result<Value, BuildError> {
    let dtype = plan.dtype;
    g.within("fuse", |g| {
        let embedded = norm(g, "embedding_norm", dtype, &head.embedding_norm, embedded)?;
        let hidden = norm(g, "hidden_norm", dtype, &head.hidden_norm, hidden)?;
        let (first, second) = match plan.wiring.order {
            HeadOrder::EmbeddingFirst => (&embedded, &hidden),
            HeadOrder::HiddenFirst => (&hidden, &embedded),
        };
        let both = ops::concat_columns(g, "both", first, second)?;
        let weights = plan.head_precision().weights(g, "fc", &head.fc)?;
        weights.apply(g, "fc", &both)
    })
}
