//! `Gemm`.

use crate::error::BuildError;
use crate::graph::ir::Attribute;
use crate::graph::{GraphBuilder, Operator, Output, Value};

/// A projection by a weight in `[out, in]` layout: `[T, in] -> [T, out]`.
pub(crate) fn gemm(
    g: &mut GraphBuilder,
    name: &str,
    x: &Value,
    weight: &Value,
) -> Result<Value, BuildError> {
    let check = g.check(name);
    let (rows, width) = check.rows("A", x)?;
    let [out, inner] = check.rank("B", weight)?;
    check.equal("columns of B", width, inner)?;
    check.dtype("B", weight, x.dtype())?;
    let operator = Operator::onnx("Gemm", name, [x, weight]).with("transB", Attribute::Int(1));
    let [y] = g.node(operator, [Output::main(x.dtype(), [rows, out])])?;
    Ok(y)
}
