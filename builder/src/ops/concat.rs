//! `Concat`.

use crate::error::BuildError;
use crate::graph::ir::Attribute;
use crate::graph::{GraphBuilder, Operator, Output, Value};

/// `[T, a], [T, b] -> [T, a + b]`.
pub(crate) fn concat_columns(
    g: &mut GraphBuilder,
    name: &str,
    left: &Value,
    right: &Value,
) -> Result<Value, BuildError> {
    let check = g.check(name);
    let (rows, left_width) = check.rows("left", left)?;
    let (right_rows, right_width) = check.rows("right", right)?;
    check.equal("rows", rows, right_rows)?;
    check.dtype("right", right, left.dtype())?;
    let width = left_width.saturating_add(right_width);
    let operator = Operator::onnx("Concat", name, [left, right]).with("axis", Attribute::Int(1));
    let [y] = g.node(operator, [Output::main(left.dtype(), [rows, width.into()])])?;
    Ok(y)
}
