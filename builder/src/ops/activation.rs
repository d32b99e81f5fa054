//! `Sigmoid`, and SiLU made of it.

use super::arithmetic::mul;
use crate::error::BuildError;
use crate::graph::{GraphBuilder, Operator, Output, Value};

/// `1 / (1 + exp(-x))`, element by element.
pub(crate) fn sigmoid(g: &mut GraphBuilder, name: &str, x: &Value) -> Result<Value, BuildError> {
    let output = Output::main(x.dtype(), x.dims());
    let [y] = g.node(Operator::onnx("Sigmoid", name, [x]), [output])?;
    Ok(y)
}

/// `x * sigmoid(x)`, element by element: the pair that ONNX Runtime fuses.
pub(crate) fn silu(g: &mut GraphBuilder, name: &str, x: &Value) -> Result<Value, BuildError> {
    g.within(name, |g| {
        let gate = sigmoid(g, "sigmoid", x)?;
        mul(g, "mul", x, &gate)
    })
}
