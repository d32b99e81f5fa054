//! `ScatterND`.

use super::reshape::to_column;
use crate::error::BuildError;
use crate::graph::ir::Dtype;
use crate::graph::{GraphBuilder, Operator, Output, Value};

/// A table with other rows at some indices, `i64 [n]`: `[rows, row...], [n, row...] -> [rows, row...]`.
///
/// Where the result is bound to the memory of the table, ONNX Runtime writes these rows and touches nothing else.
pub(crate) fn scatter_rows(
    g: &mut GraphBuilder,
    name: &str,
    table: &Value,
    indices: &Value,
    rows: &Value,
) -> Result<Value, BuildError> {
    g.within(name, |g| {
        let check = g.check("scatter");
        check.dtype("indices", indices, Dtype::I64)?;
        let [count] = check.rank("indices", indices)?;
        let mut expected = vec![count];
        expected.extend(table.dims().iter().skip(1));
        check.tensor("updates", rows, table.dtype(), &expected)?;
        let indices = to_column(g, "indices", indices)?;
        let output = Output::main(table.dtype(), table.dims());
        let operator = Operator::onnx("ScatterND", "scatter", [table, &indices, rows]);
        let [y] = g.node(operator, [output])?;
        Ok(y)
    })
}
