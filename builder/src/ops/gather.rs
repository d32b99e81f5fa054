//! `Gather`.

use crate::error::BuildError;
use crate::graph::ir::Attribute;
use crate::graph::{GraphBuilder, Operator, Output, Value};

/// Rows of a table: `[n, width], [indices] -> [indices, width]`.
pub(crate) fn gather_rows(
    g: &mut GraphBuilder,
    name: &str,
    table: &Value,
    indices: &Value,
) -> Result<Value, BuildError> {
    let check = g.check(name);
    let (_, width) = check.rows("data", table)?;
    let [count] = check.rank("indices", indices)?;
    let operator = Operator::onnx("Gather", name, [table, indices]).with("axis", Attribute::Int(0));
    let [y] = g.node(
        operator,
        [Output::main(table.dtype(), [count, width.into()])],
    )?;
    Ok(y)
}
