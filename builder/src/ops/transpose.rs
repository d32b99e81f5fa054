//! `Transpose`.

use crate::error::BuildError;
use crate::graph::ir::Attribute;
use crate::graph::{GraphBuilder, Operator, Output, Value};

/// The same elements with axis `order[i]` as axis `i`.
pub(crate) fn transpose<const N: usize>(
    g: &mut GraphBuilder,
    name: &str,
    x: &Value,
    order: [usize; N],
) -> Result<Value, BuildError> {
    let check = g.check(name);
    let dims = check.rank::<N>("data", x)?;
    let mut permuted = Vec::with_capacity(N);
    let mut axes = Vec::with_capacity(N);
    for axis in order {
        let dim = dims.get(axis);
        let dim = dim.ok_or_else(|| check.defect("perm", "axes of the data", &axis.to_string()))?;
        permuted.push(*dim);
        axes.push(check.integer("perm", axis as u64)?);
    }
    let operator = Operator::onnx("Transpose", name, [x]).with("perm", Attribute::Ints(axes));
    let [y] = g.node(operator, [Output::main(x.dtype(), permuted)])?;
    Ok(y)
}
