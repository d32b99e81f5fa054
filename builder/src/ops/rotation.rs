//! `Cos` and `Sin`.

use crate::error::BuildError;
use crate::graph::{GraphBuilder, Operator, Output, Value};

/// Cosine of each angle, in radians.
pub(crate) fn cosine(g: &mut GraphBuilder, name: &str, x: &Value) -> Result<Value, BuildError> {
    let output = Output::main(x.dtype(), x.dims());
    let [y] = g.node(Operator::onnx("Cos", name, [x]), [output])?;
    Ok(y)
}

/// Sine of each angle, in radians.
pub(crate) fn sine(g: &mut GraphBuilder, name: &str, x: &Value) -> Result<Value, BuildError> {
    let output = Output::main(x.dtype(), x.dims());
    let [y] = g.node(Operator::onnx("Sin", name, [x]), [output])?;
    Ok(y)
}
