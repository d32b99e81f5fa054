//! States made in memory that the host reaches: where they are, over the state before the step. Memory that is written need
//! not be fetched from elsewhere, and what the operator wrote beside it is left behind.
//!
//! Everything that can be wrong is found by [`owed`], while nothing has changed. Once it is published, a state is owed, and
//! made by whoever reads it first: mostly the operator in the next step, which has the memory at hand then.

use super::Partial;
use crate::kernels::{OwedState, Recipe};
use crate::model::FixedBuffers;
use crate::state::StateError;
use crate::state::capture::Take;
use crate::state::layout::SeriesLayout;
use crate::state::pool::Tensor;

/// How the states of some rows of a step of `step_rows` rows are made: of each tensor those that `rows` lists for it.
///
/// # Errors
/// Memory that is not what the specification says.
pub(in crate::state) fn owed(
    tensors: &[Tensor],
    (step_rows, rows): (usize, &[Vec<Partial>]),
    buffers: &[FixedBuffers],
) -> Result<Vec<Vec<OwedState>>, StateError> {
    let each = tensors.iter().zip(rows).zip(buffers).enumerate();
    each.map(|(index, ((tensor, rows), buffers))| {
        let wrong = |row: Option<&Partial>| StateError::Memory {
            tensor: index,
            row: row.map_or(0, |row| row.batch),
        };
        let state = |row| state_of(tensor, step_rows, row).ok_or_else(|| wrong(Some(row)));
        let states: Vec<OwedState> = rows.iter().map(state).collect::<Result<_, _>>()?;
        let refused = buffers.can_make(&states);
        refused.map_err(|at| wrong(rows.get(at)))?;
        Ok(states)
    })
    .collect()
}

/// How the state of one row of a tensor is made; `None` for what the tensor does not capture.
fn state_of(tensor: &Tensor, step_rows: usize, row: &Partial) -> Option<OwedState> {
    let spec = tensor.spec.checkpoints.as_ref()?;
    let series = SeriesLayout::new(spec.count, step_rows, spec.width);
    let start = |slot| Some(series.elements(slot, row.batch)?.start);
    let made = match row.take {
        Take::Nothing => return None,
        Take::Copy(slot) => Recipe::Copied {
            from: start(slot)?,
            len: spec.width,
        },
        Take::Replay(kept) => {
            start(kept.checked_sub(1)?)?;
            Recipe::Replayed {
                by: tensor.kind?.replay()?,
                first: start(0)?,
                apart: step_rows * spec.width,
                kept,
            }
        }
    };
    Some(OwedState {
        row: row.write,
        made,
    })
}
