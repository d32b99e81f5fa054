//! States that are owed when a step runs: the operators of the session make those that they will read, the host the others.

#![allow(unsafe_code)]

use crate::device::Buffer;
use crate::kernels::{Collected, Ledger};
use crate::model::FixedBuffers;

/// Has the host make what no operator will. `operators` says whether the session has any of Pawl's; such a one makes what is
/// owed to a bank that it had in the run before.
///
/// # Errors
/// A row among `reads` whose state was lost.
pub(super) fn settle(
    fixed: &mut [FixedBuffers],
    reads: &[i32],
    operators: bool,
) -> Result<(), String> {
    for (tensor, buffers) in fixed.iter_mut().enumerate() {
        let read = |row: &usize| i32::try_from(*row).is_ok_and(|row| reads.contains(&row));
        if let Some(row) = buffers.lost.iter().find(|row| read(row)) {
            return Err(lost(tensor, *row));
        }
        if !(operators && buffers.by_operator) {
            buffers.settle();
        }
    }
    Ok(())
}

/// Leaves what is owed to the operators that will read it. Until it is [collected](collect), it counts as lost.
pub(super) fn hand_over(ledger: Option<&Ledger>, fixed: &mut [FixedBuffers]) {
    let Some(ledger) = ledger else { return };
    ledger.begin();
    for buffers in fixed.iter_mut().filter(|buffers| !buffers.owed.is_empty()) {
        let row = buffers.bank.row_elements();
        let checkpoints = buffers.checkpoints.as_ref().and_then(Buffer::as_f32);
        if let (Some(bank), Some(checkpoints)) = (buffers.bank.as_f32(), checkpoints) {
            let states = std::mem::take(&mut buffers.owed);
            buffers.lost.extend(states.iter().map(|state| state.row));
            // SAFETY: the states were checked against these buffers, which stay for the run; the ledger forgets them at the
            // next one, also where this one unwinds. The operator alone is bound to the checkpoints.
            unsafe { ledger.owe((bank.as_ptr(), row), checkpoints, states) };
        }
    }
}

/// Finds out what the operators have made in a run, `done` or failed. What none has begun in a run that failed is owed as
/// before.
///
/// # Errors
/// States that no operator made in a run that is done, and that are lost where an operator failed in the middle.
pub(super) fn collect(
    ledger: Option<&Ledger>,
    fixed: &mut [FixedBuffers],
    done: bool,
) -> Result<(), String> {
    let Some(ledger) = ledger else { return Ok(()) };
    let mut result = Ok(());
    for (tensor, buffers) in fixed.iter_mut().enumerate() {
        let Some(bank) = buffers.bank.as_f32() else {
            continue;
        };
        let (mut states, made) = match ledger.collect(bank.as_ptr()) {
            Collected::Made(states) => (states, true),
            Collected::Untouched(states) => (states, false),
            Collected::Lost(rows) => {
                result = Err(lost(tensor, rows.first().copied().unwrap_or(0)));
                continue;
            }
        };
        if done {
            buffers.by_operator = made;
        }
        if done && !made && !states.is_empty() {
            // Whoever had the bank instead may have written other checkpoints over those that were owed.
            result = Err(format!(
                "no operator made the states that fixed tensor {tensor} was owed"
            ));
            continue;
        }
        let returned = |row: &usize| states.iter().any(|state| state.row == *row);
        buffers.lost.retain(|row| !returned(row));
        if made {
            states.clear();
        }
        buffers.owed = states;
    }
    result
}

fn lost(tensor: usize, row: usize) -> String {
    format!(
        "row {row} of fixed tensor {tensor} was lost when an operator failed while it made the state"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::ElementType;
    use crate::kernels::{OwedState, Recipe};
    use crate::model::Lost;

    /// A bank of two rows, to the second of which the checkpoints are owed.
    fn owing() -> FixedBuffers {
        let buffer = |shape: &[usize]| Buffer::host(ElementType::F32, shape).unwrap();
        let (bank, mut checkpoints) = (buffer(&[2, 3]), buffer(&[3]));
        checkpoints.as_f32_mut().unwrap().fill(7.0);
        let mut buffers = FixedBuffers::new(bank, Some(checkpoints));
        let made = Recipe::Copied { from: 0, len: 3 };
        buffers.owed.push(OwedState { row: 1, made });
        buffers
    }

    fn bank(buffers: &FixedBuffers) -> &[f32] {
        buffers.bank.as_f32().unwrap()
    }

    #[test]
    fn the_host_makes_what_no_operator_is_known_to_read() {
        for (operators, by_operator) in [(true, true), (true, false), (false, true)] {
            let mut all = [owing()];
            all[0].by_operator = by_operator;
            settle(&mut all, &[1], operators).unwrap();
            let [buffers] = &all;
            let left = operators && by_operator;
            assert_eq!(buffers.owed.is_empty(), !left);
            let expected = if left { 0.0 } else { 7.0 };
            assert_eq!(bank(buffers)[3..], [expected; 3]);
        }
    }

    #[test]
    fn a_run_that_fails_early_leaves_what_was_owed() {
        let (ledger, mut all) = (Ledger::default(), [owing()]);
        let owed = all[0].owed.clone();
        hand_over(Some(&ledger), &mut all);
        assert_eq!(all[0].row(1), Err(Lost), "until it is collected");
        collect(Some(&ledger), &mut all, false).unwrap();
        let [buffers] = &mut all;
        assert_eq!((&buffers.owed, &buffers.lost), (&owed, &vec![]));
        buffers.settle();
        assert_eq!(bank(buffers), [0.0, 0.0, 0.0, 7.0, 7.0, 7.0]);
    }

    #[test]
    fn what_no_operator_made_in_a_whole_run_is_lost() {
        let (ledger, mut all) = (Ledger::default(), [owing()]);
        hand_over(Some(&ledger), &mut all);
        let told = collect(Some(&ledger), &mut all, true).unwrap_err();
        assert!(told.contains("fixed tensor 0"), "{told}");
        assert_eq!(all[0].row(1), Err(Lost));
        assert_eq!(all[0].settle_row(1), Err(Lost));
        assert!(settle(&mut all, &[1], true).is_err());
        // Others live on, and so does whoever has the slot next.
        assert!(all[0].row(0).is_ok());
        settle(&mut all, &[0], true).unwrap();
        all[0].forget(1);
        settle(&mut all, &[1], true).unwrap();
    }

    /// The ledger of a session outlives pools, and memory is given to others at the same address.
    #[test]
    fn an_earlier_run_is_forgotten() {
        let (ledger, mut all) = (Ledger::default(), [owing()]);
        hand_over(Some(&ledger), &mut all);
        all[0].lost.clear();
        hand_over(Some(&ledger), &mut all);
        collect(Some(&ledger), &mut all, true).unwrap();
        assert!(all[0].owed.is_empty() && !all[0].by_operator);
    }
}
