//! Checkpoints that are states themselves: one of them is copied.

use super::{Rows, Subject, commits, tensor};
use crate::contract::names::commit as names;
use crate::contract::symbols;
use crate::error::BuildError;
use crate::graph::ir::Dim;
use crate::graph::{GraphBuilder, Value};
use crate::ops;

/// Of checkpoints `[capacity, rows, row...]`. Which slot a token has, the runtime knows.
pub(super) fn slot(
    g: &mut GraphBuilder,
    subject: &Subject,
    rows: &Rows,
) -> Result<Value, BuildError> {
    copy(g, subject, rows, [subject.capacity.into(), symbols::ROWS])
}

/// Of an update output `[rows, capacity, row...]`.
pub(super) fn entry(
    g: &mut GraphBuilder,
    subject: &Subject,
    rows: &Rows,
) -> Result<Value, BuildError> {
    copy(g, subject, rows, [symbols::ROWS, subject.capacity.into()])
}

fn copy(
    g: &mut GraphBuilder,
    subject: &Subject,
    rows: &Rows,
    leading: [Dim; 2],
) -> Result<Value, BuildError> {
    let rows_lead = leading.first() == Some(&symbols::ROWS);
    let dims = tensor(leading, &subject.kind.row_shape);
    let checkpoints = g.input(names::CHECKPOINTS, subject.kind.dtype, dims)?;
    let slots = commits(g, names::SLOTS)?;
    let slots = ops::to_column(g, "slot", &slots)?;
    let batch = ops::to_column(g, "row", &rows.batch)?;
    let (first, second) = match rows_lead {
        true => (&batch, &slots),
        false => (&slots, &batch),
    };
    let places = ops::concat_columns(g, "places", first, second)?;
    ops::gather_entries(g, "states", &checkpoints, &places)
}
