//! Rows into packed inputs. Pure.

use crate::exec::StepInputs;

/// Which tokens of a row get logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogitsOf {
    /// None: the row does not run its last known token yet.
    Nothing,
    /// The last `n`.
    Last(usize),
}

/// Clears the token inputs of a step; the vectors keep their memory.
pub(crate) fn clear(inputs: &mut StepInputs) {
    inputs.input_ids.clear();
    inputs.position_ids.clear();
    inputs.cumulative.clear();
    inputs.cumulative.push(0);
    inputs.logits_indices.clear();
    inputs.hidden_states.clear();
}

/// Appends one row: `tokens` at positions from `past` on.
pub(crate) fn push_row(
    inputs: &mut StepInputs,
    past: usize,
    tokens: impl IntoIterator<Item = u32>,
    logits: LogitsOf,
) {
    let start = inputs.input_ids.len();
    inputs.input_ids.extend(tokens.into_iter().map(i64::from));
    let end = inputs.input_ids.len();
    let positions = (past..)
        .take(end - start)
        .map(|p| i64::try_from(p).unwrap_or(i64::MAX));
    inputs.position_ids.extend(positions);
    inputs.cumulative.push(clamp(end));
    let wanted = match logits {
        LogitsOf::Nothing => 0,
        LogitsOf::Last(count) => count.min(end - start),
    };
    inputs.logits_indices.extend((end - wanted..end).map(clamp));
}

/// Counts of a step are bounded by the token budget, far below this.
fn clamp(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_packed_in_order() {
        let mut inputs = StepInputs::default();
        clear(&mut inputs);
        push_row(&mut inputs, 0, [7, 8, 9], LogitsOf::Nothing);
        push_row(&mut inputs, 40, [5], LogitsOf::Last(1));
        push_row(&mut inputs, 2, [1, 2], LogitsOf::Last(9));
        assert_eq!(inputs.input_ids, [7, 8, 9, 5, 1, 2]);
        assert_eq!(inputs.position_ids, [0, 1, 2, 40, 2, 3]);
        assert_eq!(inputs.cumulative, [0, 3, 4, 6]);
        assert_eq!(inputs.logits_indices, [3, 4, 5]);
    }

    #[test]
    fn clearing_forgets_the_step_before() {
        let mut inputs = StepInputs::default();
        clear(&mut inputs);
        push_row(&mut inputs, 0, [7], LogitsOf::Last(1));
        clear(&mut inputs);
        assert_eq!(
            (inputs.cumulative.as_slice(), inputs.input_ids.len()),
            (&[0][..], 0)
        );
        assert!(inputs.logits_indices.is_empty());
    }
}
