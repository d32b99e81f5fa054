//! States that the kernel makes before it reads them, beside states that were made beforehand.

use proptest::prelude::*;

use super::super::layout::Decay;
use super::case::{Case, cases};
use crate::kernels::isa::Level;
use crate::kernels::owed::{OwedState, Recipe, Replay};
use crate::kernels::testing::{Random, SERIAL, Threads, assert_same};

/// What an earlier step captured: of each row of the bank so many tokens.
const TOKENS: usize = 3;

/// Every row that the step does not write is owed a state, or not, in the form of the case.
fn owed(case: &Case, random: &mut Random) -> Vec<OwedState> {
    let (rows, width) = (case.rows.bank_rows, case.slot_len());
    let free = |row: &usize| !case.rows.write.contains(&(*row as i32)) && row + 1 < rows;
    let mut states = Vec::new();
    for row in (0..rows).filter(free) {
        if random.below(3) == 0 {
            continue;
        }
        let kept = 1 + random.below(TOKENS);
        let made = match case.form {
            "state" => Recipe::Copied {
                from: ((kept - 1) * rows + row) * width,
                len: width,
            },
            _ => Recipe::Replayed {
                by: Replay::Delta(case.heads, Decay::PerHead),
                first: row * width,
                apart: rows * width,
                kept,
            },
        };
        states.push(OwedState { row, made });
    }
    states
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The step captures into the memory that the states are made of, with other strides.
    #[test]
    fn a_step_reads_the_states_that_it_is_owed(case in cases(), seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let states = owed(&case, &mut random);
        let captured = case.slots * case.rows.lengths.len() * case.slot_len();
        let slots = random.floats(captured.max(TOKENS * case.rows.bank_rows * case.slot_len()), 0.5);
        let mut made = case.clone();
        for state in &states {
            let row = state.row * case.heads.state()..(state.row + 1) * case.heads.state();
            prop_assert!(state.fits((case.rows.bank_rows, case.heads.state()), slots.len()));
            state.make(&slots, &mut made.bank[row]);
        }
        for level in Level::available() {
            let expected = made.run_owing((&[], slots.clone()), level, &SERIAL);
            let serial = case.run_owing((&states, slots.clone()), level, &SERIAL);
            let shared = case.run_owing((&states, slots.clone()), level, &Threads(3));
            for found in [serial, shared] {
                for (name, (found, expected)) in
                    ["output", "bank", "slots"].into_iter().zip(found.iter().zip(&expected))
                {
                    assert_same(name, found, expected);
                }
            }
        }
    }
}
