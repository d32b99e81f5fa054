//! `MatMul`.

use crate::error::BuildError;
use crate::graph::{GraphBuilder, Operator, Output, Value};

/// Matrix products of each group of each row: `[n, groups, a, b], [n, groups, b, c] -> [n, groups, a, c]`.
pub(crate) fn matmul(
    g: &mut GraphBuilder,
    name: &str,
    left: &Value,
    right: &Value,
) -> Result<Value, BuildError> {
    let check = g.check(name);
    check.dtype("B", right, left.dtype())?;
    let [rows, groups, height, inner] = check.rank("A", left)?;
    let [right_rows, right_groups, right_inner, width] = check.rank("B", right)?;
    check.equal("rows of B", rows, right_rows)?;
    check.equal("groups of B", groups, right_groups)?;
    check.equal("height of B", inner, right_inner)?;
    let output = Output::main(left.dtype(), [rows, groups, height, width]);
    let [y] = g.node(Operator::onnx("MatMul", name, [left, right]), [output])?;
    Ok(y)
}
