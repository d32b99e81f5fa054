//! `Split`.

use crate::error::BuildError;
use crate::graph::ir::Attribute;
use crate::graph::{GraphBuilder, Operator, Output, Value};

/// Columns of `[T, sum of widths]`, each part named `<name>.<suffix>`.
pub(crate) fn split_columns<const N: usize>(
    g: &mut GraphBuilder,
    name: &str,
    x: &Value,
    parts: [(&str, u64); N],
) -> Result<[Value; N], BuildError> {
    let check = g.check(name);
    let (rows, width) = check.rows("input", x)?;
    let total = parts
        .iter()
        .fold(0_u64, |sum, (_, part)| sum.saturating_add(*part));
    check.equal("sum of the parts", width, total)?;
    let mut lengths = Vec::with_capacity(N);
    for (_, part) in &parts {
        lengths.push(check.integer("split", *part)?);
    }
    let lengths = g.integers(&lengths)?;
    let operator = Operator::onnx("Split", name, [x, &lengths]).with("axis", Attribute::Int(1));
    let outputs = parts.map(|(suffix, part)| Output::named(suffix, x.dtype(), [rows, part.into()]));
    g.node(operator, outputs)
}
