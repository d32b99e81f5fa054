//! States that are owed when a step runs: the operators of the session make those that they will read, the host the others.

#![allow(unsafe_code)]

use crate::device::Buffer;
use crate::kernels::{Collected, Ledger};
use crate::model::{FixedBuffers, Lost};

const LOST: &str = "fixed state was lost when an operator failed while it made it";
const NOT_MADE: &str = "no operator made the states that the step was to read";

/// Has the host make what is owed to banks that `left` does not leave to an operator.
pub(super) fn settle(
    fixed: &mut [FixedBuffers],
    left: impl Fn(&Buffer) -> bool,
) -> Result<(), String> {
    for buffers in fixed {
        if buffers.lost || (!buffers.owed.is_empty() && !left(&buffers.bank)) {
            buffers.settle().map_err(|Lost| LOST.to_owned())?;
        }
    }
    Ok(())
}

/// Leaves what is owed to the operators that will read it. Until it is [collected](collect), it counts as lost.
pub(super) fn hand_over(ledger: Option<&Ledger>, fixed: &mut [FixedBuffers]) {
    let Some(ledger) = ledger else { return };
    for buffers in fixed.iter_mut().filter(|buffers| !buffers.owed.is_empty()) {
        let row = buffers.bank.row_elements();
        let staging = buffers.checkpoints.as_mut().and_then(Buffer::as_f32_mut);
        if let (Some(bank), Some(staging)) = (buffers.bank.as_f32(), staging) {
            let states = std::mem::take(&mut buffers.owed);
            buffers.lost = true;
            let staging = (staging.as_mut_ptr(), staging.len());
            // SAFETY: the buffers belong to the run, which only ends after the debt is collected; meanwhile only the
            // operator is bound to them.
            unsafe { ledger.owe((bank.as_ptr(), row), staging, states) };
        }
    }
}

/// Finds out what the operators have made. What none has begun is owed as before: after a step that failed early.
///
/// # Errors
/// States that no operator made although the step may be done, and states that were lost.
pub(super) fn collect(ledger: Option<&Ledger>, fixed: &mut [FixedBuffers]) -> Result<(), String> {
    let Some(ledger) = ledger else { return Ok(()) };
    let mut result = Ok(());
    for buffers in fixed.iter_mut().filter(|buffers| buffers.lost) {
        let Some(bank) = buffers.bank.as_f32() else {
            continue;
        };
        match ledger.collect(bank.as_ptr()) {
            Collected::Made => buffers.lost = false,
            Collected::Owed(states) => {
                (buffers.owed, buffers.lost) = (states, false);
                result = result.and(Err(NOT_MADE.to_owned()));
            }
            Collected::Lost => result = Err(LOST.to_owned()),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::ElementType;
    use crate::kernels::{Made, OwedState};

    /// A bank of two rows, to the second of which the checkpoints are owed.
    fn owing() -> FixedBuffers {
        let buffer = |shape: &[usize]| Buffer::host(ElementType::F32, shape).unwrap();
        let (bank, mut checkpoints) = (buffer(&[2, 3]), buffer(&[3]));
        checkpoints.as_f32_mut().unwrap().fill(7.0);
        let mut buffers = FixedBuffers::new(bank, Some(checkpoints));
        let made = Made::Copied { from: 0, len: 3 };
        buffers.owed.push(OwedState { row: 1, made });
        buffers
    }

    fn bank(buffers: &FixedBuffers) -> &[f32] {
        buffers.bank.as_f32().unwrap()
    }

    #[test]
    fn the_host_makes_what_no_operator_is_known_to_read() {
        for left in [true, false] {
            let mut all = [owing()];
            settle(&mut all, |_| left).unwrap();
            let [buffers] = &all;
            assert_eq!(buffers.owed.is_empty(), !left);
            let expected = if left { 0.0 } else { 7.0 };
            assert_eq!(bank(buffers)[3..], [expected; 3]);
        }
    }

    #[test]
    fn what_no_operator_made_fails_the_step_and_is_made_by_the_host() {
        let (ledger, mut all) = (Ledger::default(), [owing()]);
        hand_over(Some(&ledger), &mut all);
        assert!(
            all[0].lost && all[0].owed.is_empty(),
            "until it is collected"
        );
        assert_eq!(collect(Some(&ledger), &mut all), Err(NOT_MADE.to_owned()));
        let left = |bank: &Buffer| ledger.knows(bank.as_f32().unwrap().as_ptr());
        settle(&mut all, left).unwrap();
        let [buffers] = &all;
        assert_eq!(bank(buffers), [0.0, 0.0, 0.0, 7.0, 7.0, 7.0]);
        assert!(!buffers.lost && buffers.owed.is_empty());
    }

    #[test]
    fn what_is_lost_is_neither_run_nor_read() {
        let mut all = [owing()];
        hand_over(Some(&Ledger::default()), &mut all);
        assert_eq!(settle(&mut all, |_| true), Err(LOST.to_owned()));
        assert_eq!(all[0].row(0), Err(Lost));
        assert_eq!(all[0].settle(), Err(Lost));
    }
}
