//! `Reshape`, always with static targets, so that no shape is computed at run time.

use crate::error::BuildError;
use crate::graph::ir::Dim;
use crate::graph::{GraphBuilder, Operator, Output, Value};

/// `[T, heads * width] -> [T, heads, width]`; no node when the heads are apart already.
pub(crate) fn columns_to_heads(
    g: &mut GraphBuilder,
    name: &str,
    x: &Value,
    heads: u64,
) -> Result<Value, BuildError> {
    let check = g.check(name);
    if let [_, apart, _] = x.dims() {
        check.equal("heads", heads, *apart)?;
        return Ok(x.clone());
    }
    let (rows, columns) = check.rows("data", x)?;
    let width = columns.checked_div(heads).unwrap_or(0);
    check.equal("columns", heads.saturating_mul(width), columns)?;
    reshape(g, name, x, &[rows, heads.into(), width.into()])
}

/// `[T, heads, width] -> [T, heads * width]`.
pub(crate) fn heads_to_columns(
    g: &mut GraphBuilder,
    name: &str,
    x: &Value,
) -> Result<Value, BuildError> {
    let check = g.check(name);
    let [rows, heads, width] = check.rank("data", x)?;
    let (heads, width) = (check.extent("data", heads)?, check.extent("data", width)?);
    reshape(g, name, x, &[rows, heads.saturating_mul(width).into()])
}

/// `[T] -> [T, 1]`.
pub(crate) fn to_column(g: &mut GraphBuilder, name: &str, x: &Value) -> Result<Value, BuildError> {
    let [rows] = g.check(name).rank("data", x)?;
    reshape(g, name, x, &[rows, Dim::Static(1)])
}

/// `[T, ...] -> [T, extents...]`, of as many elements.
pub(crate) fn reshape_rows(
    g: &mut GraphBuilder,
    name: &str,
    x: &Value,
    extents: &[u64],
) -> Result<Value, BuildError> {
    let check = g.check(name);
    let Some((&rows, row)) = x.dims().split_first() else {
        return Err(check.defect("data", "rows", "a scalar"));
    };
    let mut elements = 1_u64;
    for extent in row {
        elements = elements.saturating_mul(check.extent("data", *extent)?);
    }
    let wanted = extents.iter().fold(1, |n: u64, d| n.saturating_mul(*d));
    check.equal("elements of a row", elements, wanted)?;
    let mut dims = vec![rows];
    dims.extend(extents.iter().map(|extent| Dim::Static(*extent)));
    reshape(g, name, x, &dims)
}

/// The leading axis is kept (a 0 in the target).
fn reshape(g: &mut GraphBuilder, name: &str, x: &Value, dims: &[Dim]) -> Result<Value, BuildError> {
    let check = g.check(name);
    let mut target = vec![0_i64];
    for dim in dims.iter().skip(1) {
        let extent = check.extent("shape", *dim)?;
        target.push(check.integer("shape", extent)?);
    }
    let shape = g.integers(&target)?;
    let output = Output::main(x.dtype(), dims);
    let [y] = g.node(Operator::onnx("Reshape", name, [x, &shape]), [output])?;
    Ok(y)
}
