//! Every phase, and leaving a step in each of them.

use super::fixture::*;
use crate::txn::{Keep, StepRow};
use std::num::NonZeroUsize;

fn keep(tokens: usize) -> Keep {
    Keep {
        tokens: NonZeroUsize::new(tokens).unwrap(),
        head_tokens: 0,
    }
}

#[test]
fn a_published_step_is_visible() {
    let mut composite = composite(Form::Update(8), 2, 8, false);
    let mut step = composite
        .reserve(&[StepRow::plain(id(1), 3, true)])
        .unwrap();
    let histories = run(&mut step, Form::Update(8), &[vec![5, 6, 7]]);
    assert_eq!(histories, [[5, 6, 7]]);
    let step = step.accept(&[keep(3)]).unwrap();
    let outcome = step.validate().unwrap().prepare().unwrap().publish();
    assert_eq!(outcome.rows[0].committed, 3);
    assert_eq!(composite.tokens(id(1)), Some(3));
    assert_sound(&composite);
    let (conv, delta) = sequential(&[5, 6, 7]);
    assert_eq!(
        composite.committed_rows(id(1)).unwrap(),
        [&conv[..], &delta[..]]
    );
}
