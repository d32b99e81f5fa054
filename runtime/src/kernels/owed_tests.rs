//! Accounts, and states made in parts.

use super::*;
use crate::kernels::testing::{Random, SERIAL, Threads};

const HEADS: Heads = Heads {
    keys: 2,
    values: 4,
    key_dim: 5,
    value_dim: 3,
};

fn states() -> [OwedState; 4] {
    let replayed = |by: Replay, kept| {
        let made = Recipe::Replayed {
            by,
            first: 7,
            apart: 2 * by.extents().1,
            kept,
        };
        OwedState { row: 1, made }
    };
    let append = Replay::Append {
        channels: 6,
        history: 3,
    };
    let len = 2 * COPIED + 5;
    let copied = Recipe::Copied { from: 11, len };
    [
        replayed(Replay::Delta(HEADS, Decay::PerHead), 2),
        replayed(Replay::Delta(HEADS, Decay::PerKey), 3),
        replayed(append, 2),
        OwedState {
            row: 1,
            made: copied,
        },
    ]
}

/// Elements of a row, and of the checkpoints that it needs.
fn sizes(state: &OwedState) -> (usize, usize) {
    let row = match state.made {
        Recipe::Copied { len, .. } => len,
        Recipe::Replayed { by, .. } => by.extents().0,
    };
    (row, state.reads().map(|range| range.end).max().unwrap())
}

#[test]
fn parts_cover_a_row_once() {
    for state in states() {
        let (row, _) = sizes(&state);
        let parts = (0..state.parts(row)).map(|part| state.elements(part, row));
        let mut next = 0;
        for part in parts {
            assert_eq!(part.start, next, "{state:?}");
            next = part.end;
        }
        assert_eq!(next, row, "{state:?}");
    }
}

#[test]
fn what_lies_outside_does_not_fit() {
    for state in states() {
        let (row, checkpoints) = sizes(&state);
        assert!(state.fits((2, row), checkpoints), "{state:?}");
        assert!(!state.fits((1, row), checkpoints), "{state:?}");
        assert!(!state.fits((2, row + 1), checkpoints), "{state:?}");
        assert!(!state.fits((2, row), checkpoints - 1), "{state:?}");
    }
    let [replayed, ..] = states();
    let Recipe::Replayed { by, apart, .. } = replayed.made else {
        panic!("{replayed:?}");
    };
    for (first, kept) in [(0, 0), (usize::MAX, 1), (0, usize::MAX)] {
        let made = Recipe::Replayed {
            by,
            first,
            apart,
            kept,
        };
        let state = OwedState { row: 0, made };
        assert!(!state.fits((2, 60), 1000), "{state:?}");
    }
}

/// A bank of three rows and the checkpoints of one of them.
fn memory(state: &OwedState) -> (Vec<f32>, Vec<f32>) {
    let ((row, checkpoints), mut random) = (sizes(state), Random::new(3));
    (random.floats(3 * row, 1.0), random.floats(checkpoints, 1.0))
}

#[test]
fn an_operator_makes_what_is_owed_once() {
    for state in states() {
        let (row, _) = sizes(&state);
        let (bank, checkpoints) = memory(&state);
        let mut expected = bank.clone();
        state.make(&checkpoints, &mut expected[row..2 * row]);
        for threads in [&SERIAL as &dyn Parallel, &Threads(3)] {
            let (ledger, mut bank) = (Ledger::default(), bank.clone());
            let cells = Cells::new(&mut bank);
            let address = cells.as_ptr();
            assert_eq!(ledger.collect(address), Collected::Untouched(vec![]));
            ledger.settle(cells, threads).unwrap();
            assert_eq!(ledger.collect(address), Collected::Made(vec![]));
            // SAFETY: the checkpoints outlive the ledger.
            unsafe { ledger.owe((address, row), &raw const *checkpoints, vec![state]) };
            ledger.settle(cells, threads).unwrap();
            ledger.settle(cells, threads).unwrap();
            assert_eq!(ledger.collect(address), Collected::Made(vec![state]));
            assert_eq!(bank, expected, "{state:?}");
        }
    }
}

#[test]
fn what_no_operator_takes_is_owed_as_before() {
    let state = states()[0];
    let (bank, checkpoints) = memory(&state);
    let (ledger, row) = (Ledger::default(), sizes(&state).0);
    // SAFETY: the checkpoints outlive the ledger.
    let owe = || unsafe { ledger.owe((bank.as_ptr(), row), &raw const *checkpoints, vec![state]) };
    owe();
    let collected = ledger.collect(bank.as_ptr());
    assert_eq!(collected, Collected::Untouched(vec![state]));
    owe();
    ledger.begin();
    let collected = ledger.collect(bank.as_ptr());
    assert_eq!(collected, Collected::Untouched(vec![]), "of an earlier run");
}

/// Threads that fail.
struct Broken;

impl Parallel for Broken {
    fn spread(&self, _: usize, _: &(dyn Fn(usize) + Sync)) -> Result<(), KernelError> {
        Err(KernelError::Panicked)
    }

    fn run(
        &self,
        items: usize,
        _: usize,
        work: &(dyn Fn(usize) + Sync),
    ) -> Result<(), KernelError> {
        self.spread(items, work)
    }
}

#[test]
fn what_an_operator_fails_at_is_lost() {
    let state = states()[0];
    let (mut bank, checkpoints) = memory(&state);
    let (ledger, row) = (Ledger::default(), sizes(&state).0);
    let cells = Cells::new(&mut bank);
    // SAFETY: the checkpoints outlive the ledger.
    unsafe { ledger.owe((cells.as_ptr(), row), &raw const *checkpoints, vec![state]) };
    assert_eq!(ledger.settle(cells, &Broken), Err(KernelError::Panicked));
    assert_eq!(ledger.settle(cells, &SERIAL), Err(KernelError::Lost));
    let collected = ledger.collect(cells.as_ptr());
    assert_eq!(collected, Collected::Lost(vec![state.row]));
}
