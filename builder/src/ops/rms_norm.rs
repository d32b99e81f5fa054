//! `RMSNormalization` (opset 23).

use crate::error::BuildError;
use crate::graph::ir::Attribute;
use crate::graph::{GraphBuilder, Operator, Output, Value};

/// `x / sqrt(mean(x^2) + epsilon) * weight` over the last axis, which is as long as `weight`.
pub(crate) fn rms_norm(
    g: &mut GraphBuilder,
    name: &str,
    x: &Value,
    weight: &Value,
    epsilon: f32,
) -> Result<Value, BuildError> {
    let check = g.check(name);
    let [width] = check.rank("scale", weight)?;
    let last = x.dims().last().copied();
    check.equal("last axis of X", width, last.unwrap_or(0.into()))?;
    check.dtype("scale", weight, x.dtype())?;
    let operator = Operator::onnx("RMSNormalization", name, [x, weight])
        .with("axis", Attribute::Int(-1))
        .with("epsilon", Attribute::Float(epsilon));
    let [y] = g.node(operator, [Output::main(x.dtype(), x.dims())])?;
    Ok(y)
}
