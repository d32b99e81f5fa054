//! `Add` and `Mul`.

use crate::error::BuildError;
use crate::graph::ir::Dim;
use crate::graph::{Check, GraphBuilder, Operator, Output, Value};

/// Sum of two tensors of equal shape.
pub(crate) fn add(
    g: &mut GraphBuilder,
    name: &str,
    a: &Value,
    b: &Value,
) -> Result<Value, BuildError> {
    let check = g.check(name);
    for (&left, &right) in a.dims().iter().zip(b.dims()) {
        check.equal("extents", left, right)?;
    }
    add_repeated(g, name, a, b)
}

/// Sum of two tensors of equal rank; an extent of 1 is repeated.
pub(crate) fn add_repeated(
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
    let dims = repeated(&check, a.dims(), b.dims())?;
    let output = Output::main(a.dtype(), dims);
    let [y] = g.node(Operator::onnx(op_type, name, [a, b]), [output])?;
    Ok(y)
}

/// The shape of two tensors of equal rank together; an extent of 1 is repeated.
pub(super) fn repeated(check: &Check, a: &[Dim], b: &[Dim]) -> Result<Vec<Dim>, BuildError> {
    let one = Dim::Static(1);
    let mut dims = Vec::with_capacity(a.len());
    for (&left, &right) in a.iter().zip(b) {
        if left != one && right != one {
            check.equal("extents", left, right)?;
        }
        dims.push(if left == one { right } else { left });
    }
    check.equal("rank", a.len() as u64, b.len() as u64)?;
    Ok(dims)
}
