//! `Less` and `Where`.

use super::arithmetic::repeated;
use crate::error::BuildError;
use crate::graph::ir::Dtype;
use crate::graph::{GraphBuilder, Operator, Output, Value};

/// Whether `a < b`; an extent of 1 is repeated.
pub(crate) fn less(
    g: &mut GraphBuilder,
    name: &str,
    a: &Value,
    b: &Value,
) -> Result<Value, BuildError> {
    let check = g.check(name);
    check.dtype("B", b, a.dtype())?;
    let dims = repeated(&check, a.dims(), b.dims())?;
    let operator = Operator::onnx("Less", name, [a, b]);
    let [y] = g.node(operator, [Output::main(Dtype::Bool, dims)])?;
    Ok(y)
}

/// `a` where the condition holds, else `b`, which is never looked at where it does; an extent of 1 is repeated.
pub(crate) fn choose(
    g: &mut GraphBuilder,
    name: &str,
    condition: &Value,
    a: &Value,
    b: &Value,
) -> Result<Value, BuildError> {
    let check = g.check(name);
    check.dtype("condition", condition, Dtype::Bool)?;
    check.dtype("Y", b, a.dtype())?;
    let dims = repeated(&check, condition.dims(), a.dims())?;
    let dims = repeated(&check, &dims, b.dims())?;
    let operator = Operator::onnx("Where", name, [condition, a, b]);
    let [y] = g.node(operator, [Output::main(a.dtype(), dims)])?;
    Ok(y)
}
