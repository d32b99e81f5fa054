//! `Concat`.

use crate::error::BuildError;
use crate::graph::ir::Attribute;
use crate::graph::{GraphBuilder, Operator, Output, Value};

/// Two tensors side by side along their second axis: `[n, a, rest...], [n, b, rest...] -> [n, a + b, rest...]`.
pub(crate) fn concat_columns(
    g: &mut GraphBuilder,
    name: &str,
    left: &Value,
    right: &Value,
) -> Result<Value, BuildError> {
    let check = g.check(name);
    check.dtype("right", right, left.dtype())?;
    let (&[rows, left_width, ref rest @ ..], &[right_rows, right_width, ref right_rest @ ..]) =
        (left.dims(), right.dims())
    else {
        return Err(check.defect("left and right", "a second axis", "none"));
    };
    check.equal("rows", rows, right_rows)?;
    let left_width = check.extent("left", left_width)?;
    let right_width = check.extent("right", right_width)?;
    check.equal("rank", rest.len() as u64, right_rest.len() as u64)?;
    for (left, right) in rest.iter().zip(right_rest) {
        check.equal("extents", *left, *right)?;
    }
    let mut dims = vec![rows, left_width.saturating_add(right_width).into()];
    dims.extend(rest);
    let operator = Operator::onnx("Concat", name, [left, right]).with("axis", Attribute::Int(1));
    let [y] = g.node(operator, [Output::main(left.dtype(), dims)])?;
    Ok(y)
}
