//! Transitions of a convolution: the input value of every channel.

use super::{Replay, Rows, Subject, positions};
use crate::error::BuildError;
use crate::graph::{GraphBuilder, Value};
use crate::ops;

/// The samples that the convolution would look back on after the kept tokens, `[commits, channels, history]`.
///
/// The kept values follow the samples before the step, and the last `history` of both are taken: sample `p` of the new
/// history is sample `p + kept` of old and new together. No value beyond the kept ones is ever reached. All of it
/// moves elements and computes none, so the states are those of the operator, bit for bit.
pub(super) fn replay(
    g: &mut GraphBuilder,
    subject: &Subject,
    rows: &Rows,
) -> Result<Value, BuildError> {
    let check = g.check("replay");
    let [_, channels, history] = check.rank("bank", &rows.bank)?;
    let channels = check.extent("channels", channels)?;
    let history = check.extent("history", history)?;
    let shape = [subject.capacity, channels];
    let Replay {
        before,
        transitions,
        kept,
    } = Replay::declare(g, subject, rows, &shape)?;
    let past = ops::transpose(g, "past", &before, [0, 2, 1])?;
    let samples = ops::concat_columns(g, "samples", &past, &transitions)?;
    let offsets = positions(g, "offsets", history)?;
    let window = ops::add_repeated(g, "window", &kept, &offsets)?;
    let newest = ops::gather_columns_of_rows(g, "newest", &samples, &window)?;
    ops::transpose(g, "states", &newest, [0, 2, 1])
}
