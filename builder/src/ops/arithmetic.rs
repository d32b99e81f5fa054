//! `Add` and `Mul`.

use crate::error::BuildError;
use crate::graph::ir::Dim;
use crate::graph::{GraphBuilder, Operator, Output, Value};

/// Sum of two tensors of equal shape.
pub(crate) fn add(
    g: &mut GraphBuilder,
    name: &str,
    a: &Value,
    b: &Value,
) -> Result<Value, BuildError> {
    elementwise(g, "Add", name, a, b)
}

/// Product of two tensors of equal rank; an extent of 1 is repeated.
pub(crate) fn mul(
    g: &mut GraphBuilder,
    name: &str,
    a: &Value,
    b: &Value,
) -> Result<Value, BuildError> {
    elementwise(g, "Mul", name, a, b)
}

fn elementwise(
    g: &mut GraphBuilder,
    op_type: &'static str,
    name: &str,
    a: &Value,
    b: &Value,
) -> Result<Value, BuildError> {
    let check = g.check(name);
    check.dtype("B", b, a.dtype())?;
    let one = Dim::Static(1);
    let mut dims = Vec::with_capacity(a.dims().len());
    for (&left, &right) in a.dims().iter().zip(b.dims()) {
        let repeated = op_type == "Mul" && (left == one || right == one);
        if !repeated {
            check.equal("extents", left, right)?;
        }
        dims.push(if left == one { right } else { left });
    }
    check.equal("rank", a.dims().len() as u64, b.dims().len() as u64)?;
    let output = Output::main(a.dtype(), dims);
    let [y] = g.node(Operator::onnx(op_type, name, [a, b]), [output])?;
    Ok(y)
}
