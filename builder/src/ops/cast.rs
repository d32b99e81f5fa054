//! `Cast`.

use crate::error::BuildError;
use crate::graph::ir::{Attribute, Dtype};
use crate::graph::{GraphBuilder, Operator, Output, Value};

/// The same numbers in another element type; no node when the type is right already.
pub(crate) fn cast(
    g: &mut GraphBuilder,
    name: &str,
    x: &Value,
    dtype: Dtype,
) -> Result<Value, BuildError> {
    if x.dtype() == dtype {
        return Ok(x.clone());
    }
    let to = Attribute::Int(i64::from(dtype.onnx()));
    let operator = Operator::onnx("Cast", name, [x]).with("to", to);
    let [y] = g.node(operator, [Output::main(dtype, x.dims())])?;
    Ok(y)
}
