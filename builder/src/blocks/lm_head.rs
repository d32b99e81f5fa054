//! From hidden rows to logits.

use super::Projection;
use crate::contract::{StepInputs, names};
use crate::error::BuildError;
use crate::graph::ir::Dtype;
use crate::graph::{GraphBuilder, Place, Value};
use crate::ops;

/// Logits in float32 of the rows that the step asks for, and of no others.
pub(crate) fn lm_head(
    g: &mut GraphBuilder,
    step: &StepInputs,
    hidden: &Value,
    projection: &Projection,
) -> Result<(), BuildError> {
    g.within("lm_head", |g| {
        let rows = ops::gather_rows(g, "rows", hidden, &step.logits_indices)?;
        let logits = projection.apply(g, "logits", &rows)?;
        let logits = ops::cast(g, "logits_f32", &logits, Dtype::F32)?;
        g.output(Place::Result, names::LOGITS, &logits);
        Ok(())
    })
}
