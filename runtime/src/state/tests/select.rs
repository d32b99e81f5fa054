//! `select` against series that are written slot by slot, for every window, length and kept count.

use crate::state::select::{Query, SelectError, Source, select};
use genai_config_schema::{CheckpointAlignment, CheckpointForm};
use proptest::prelude::*;
use std::num::NonZeroUsize;

const LEFT: CheckpointAlignment = CheckpointAlignment::Left;
const RIGHT: CheckpointAlignment = CheckpointAlignment::Right;

fn query(form: CheckpointForm, alignment: CheckpointAlignment, capacity: usize, n: usize) -> Query {
    let kept = NonZeroUsize::MIN;
    Query {
        form,
        alignment,
        capacity,
        captured: n,
        final_written: true,
        tokens: n,
        kept,
    }
}

fn keeping(query: Query, kept: usize) -> Query {
    Query {
        kept: NonZeroUsize::new(kept).unwrap(),
        ..query
    }
}

/// The series an operator would write: the local token of every slot. A row of `n <= capacity` tokens written left
/// fills the first slots; written right, it fills the last.
fn series(alignment: CheckpointAlignment, capacity: usize, n: usize) -> Vec<Option<usize>> {
    let mut tokens: Vec<Option<usize>> = (0..n).map(Some).collect();
    let unwritten = vec![None; capacity - n];
    match alignment {
        CheckpointAlignment::Left => {
            tokens.extend(unwritten);
            tokens
        }
        CheckpointAlignment::Right => [unwritten, tokens].concat(),
    }
}

#[test]
fn every_slot_holds_the_last_kept_token() {
    for alignment in [LEFT, RIGHT] {
        for capacity in 1..=8 {
            for n in 1..=capacity {
                let series = series(alignment, capacity, n);
                let base = Query {
                    final_written: false,
                    ..query(CheckpointForm::State, alignment, capacity, n)
                };
                for kept in 1..=n {
                    let slot = series
                        .iter()
                        .position(|token| *token == Some(kept - 1))
                        .unwrap();
                    assert_eq!(select(&keeping(base, kept)), Ok(Source::Slot(slot)));
                }
            }
        }
    }
}

#[test]
fn the_worked_table_for_four_slots() {
    let table = [
        (1, 1, 0, 3),
        (2, 1, 0, 2),
        (2, 2, 1, 3),
        (3, 1, 0, 1),
        (3, 2, 1, 2),
        (3, 3, 2, 3),
        (4, 1, 0, 0),
        (4, 2, 1, 1),
        (4, 3, 2, 2),
        (4, 4, 3, 3),
    ];
    for (n, kept, left, right) in table {
        for (alignment, slot) in [(LEFT, left), (RIGHT, right)] {
            let base = query(CheckpointForm::State, alignment, 4, n);
            let candidate = Query {
                final_written: false,
                ..keeping(base, kept)
            };
            assert_eq!(
                select(&candidate),
                Ok(Source::Slot(slot)),
                "{n} {kept} {alignment:?}"
            );
            let whole = if kept == n {
                Source::Final
            } else {
                Source::Slot(slot)
            };
            assert_eq!(select(&keeping(base, kept)), Ok(whole));
        }
    }
}

#[test]
fn alignments_differ_below_the_full_window() {
    for capacity in 2..=8 {
        for n in 2..capacity {
            for kept in 1..n {
                let of = |alignment| {
                    select(&keeping(
                        query(CheckpointForm::State, alignment, capacity, n),
                        kept,
                    ))
                };
                assert_ne!(of(LEFT), of(RIGHT));
            }
        }
    }
}

#[test]
fn transitions_replay_from_the_first_one_and_are_never_right() {
    for capacity in 1..=8 {
        for n in 1..=capacity {
            for kept in 1..n {
                let base = keeping(query(CheckpointForm::Update, LEFT, capacity, n), kept);
                assert_eq!(select(&base), Ok(Source::Replay(kept)));
                let right = Query {
                    alignment: RIGHT,
                    ..base
                };
                assert_eq!(select(&right), Err(SelectError::Alignment));
            }
        }
    }
}

#[test]
fn a_candidate_that_keeps_all_replays_all() {
    let base = query(CheckpointForm::Update, LEFT, 8, 5);
    let candidate = Query {
        final_written: false,
        ..keeping(base, 5)
    };
    assert_eq!(select(&candidate), Ok(Source::Replay(5)));
}

#[test]
fn all_kept_needs_no_checkpoint() {
    let base = query(CheckpointForm::State, LEFT, 0, 100);
    assert_eq!(
        select(&Query {
            captured: 0,
            ..keeping(base, 100)
        }),
        Ok(Source::Final)
    );
}

proptest! {
    #[test]
    fn what_does_not_exist_is_refused(
        update: bool, right: bool, final_written: bool,
        capacity in 0usize..10, captured in 0usize..12, tokens in 0usize..12, kept in 1usize..14,
    ) {
        let form = if update { CheckpointForm::Update } else { CheckpointForm::State };
        let alignment = if right && !update { RIGHT } else { LEFT };
        let kept_tokens = NonZeroUsize::new(kept).unwrap();
        let query = Query {
            form, alignment, capacity, captured, final_written, tokens, kept: kept_tokens,
        };
        let answer = select(&query);
        if kept > tokens {
            prop_assert_eq!(answer, Err(SelectError::KeptTooMany { kept, tokens }));
        } else if kept == tokens && final_written {
            prop_assert_eq!(answer, Ok(Source::Final));
        } else if kept > captured {
            prop_assert_eq!(answer, Err(SelectError::NotCaptured { kept, captured }));
        } else if tokens > capacity {
            prop_assert_eq!(answer, Err(SelectError::TooLong { tokens, capacity }));
        } else if update {
            prop_assert_eq!(answer, Ok(Source::Replay(kept)));
        } else {
            let slot = series(alignment, capacity, tokens).iter().position(|t| *t == Some(kept - 1));
            prop_assert_eq!(answer, Ok(Source::Slot(slot.unwrap())));
        }
    }
}
