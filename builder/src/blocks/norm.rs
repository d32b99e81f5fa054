//! RMS norm with its weight.

use pawl_models::Norm;

use crate::error::BuildError;
use crate::graph::ir::Dtype;
use crate::graph::{GraphBuilder, Value};
use crate::ops;

/// The norm of the last axis.
pub(crate) fn norm(
    g: &mut GraphBuilder,
    name: &str,
    dtype: Dtype,
    norm: &Norm,
    x: &Value,
) -> Result<Value, BuildError> {
    let weight = g.weight(&format!("{name}.weight"), dtype, &norm.weight)?;
    ops::rms_norm(g, name, x, &weight, norm.epsilon)
}
