//! `Gather` and `GatherND`.

use crate::error::BuildError;
use crate::graph::ir::{Attribute, Dim, Dtype};
use crate::graph::{GraphBuilder, Operator, Output, Value};

/// Rows of a table: `[n, row...], [indices] -> [indices, row...]`.
pub(crate) fn gather_rows(
    g: &mut GraphBuilder,
    name: &str,
    table: &Value,
    indices: &Value,
) -> Result<Value, BuildError> {
    let check = g.check(name);
    let [count] = check.rank("indices", indices)?;
    let row = table.dims().iter().skip(1);
    let mut dims = vec![count];
    for extent in row {
        check.extent("data", *extent)?;
        dims.push(*extent);
    }
    if dims.len() < 2 {
        return Err(check.defect("data", "rows", "a list"));
    }
    gather(g, name, 0, [table, indices], dims)
}

/// Entries of the second axis: `[n, a, rest...] -> [n, indices, rest...]`.
pub(crate) fn gather_columns(
    g: &mut GraphBuilder,
    name: &str,
    x: &Value,
    indices: &[u64],
) -> Result<Value, BuildError> {
    let check = g.check(name);
    let mut dims = x.dims().to_vec();
    let Some(axis) = dims.get_mut(1) else {
        return Err(check.defect("data", "a second axis", "none"));
    };
    let extent = check.extent("data", *axis)?;
    *axis = (indices.len() as u64).into();
    let mut list = Vec::with_capacity(indices.len());
    for index in indices {
        if *index >= extent {
            return Err(check.defect("indices", &format!("below {extent}"), &index.to_string()));
        }
        list.push(check.integer("indices", *index)?);
    }
    let indices = g.integers(&list)?;
    gather(g, name, 1, [x, &indices], dims)
}

fn gather(
    g: &mut GraphBuilder,
    name: &str,
    axis: i64,
    inputs: [&Value; 2],
    dims: Vec<Dim>,
) -> Result<Value, BuildError> {
    let [data, _] = inputs;
    let output = Output::main(data.dtype(), dims);
    let operator = Operator::onnx("Gather", name, inputs).with("axis", Attribute::Int(axis));
    let [y] = g.node(operator, [output])?;
    Ok(y)
}

/// Entries named by a tuple of indices, `i64 [n, tuple]` each: `[a, b, rest...] -> [n, rest...]`.
pub(crate) fn gather_entries(
    g: &mut GraphBuilder,
    name: &str,
    x: &Value,
    indices: &Value,
) -> Result<Value, BuildError> {
    let check = g.check(name);
    check.dtype("indices", indices, Dtype::I64)?;
    let (count, tuple) = check.rows("indices", indices)?;
    check.equal("length of a tuple", 2, tuple)?;
    let mut dims = vec![count];
    dims.extend(x.dims().iter().skip(2));
    gather_nd(g, name, [x, indices], 0, dims)
}

/// Entries of the second axis, others of each row: `[n, a, rest...], i64 [n, m, 1] -> [n, m, rest...]`.
pub(crate) fn gather_columns_of_rows(
    g: &mut GraphBuilder,
    name: &str,
    x: &Value,
    indices: &Value,
) -> Result<Value, BuildError> {
    let check = g.check(name);
    check.dtype("indices", indices, Dtype::I64)?;
    let [rows, count, one] = check.rank("indices", indices)?;
    check.equal("length of an index", 1, one)?;
    let mut dims = vec![rows, count];
    dims.extend(x.dims().iter().skip(2));
    if let Some(found) = x.dims().first() {
        check.equal("rows", rows, *found)?;
    }
    gather_nd(g, name, [x, indices], 1, dims)
}

fn gather_nd(
    g: &mut GraphBuilder,
    name: &str,
    inputs: [&Value; 2],
    batch_dims: i64,
    dims: Vec<Dim>,
) -> Result<Value, BuildError> {
    let [data, _] = inputs;
    let output = Output::main(data.dtype(), dims);
    let operator = Operator::onnx("GatherND", name, inputs);
    let operator = operator.with("batch_dims", Attribute::Int(batch_dims));
    let [y] = g.node(operator, [output])?;
    Ok(y)
}
