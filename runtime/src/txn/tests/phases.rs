//! Every phase, leaving a step in each of them, and what is refused.

use super::fixture::*;
use crate::exec::Capture;
use crate::kv::{Blocks, KvError};
use crate::state::audit::audit;
use crate::state::{Bank, SelectError, Slot, StateError};
use crate::txn::{
    Composite, Health, Keep, Permit, Prepared, Step, StepError, StepOutcome, StepRow,
};

const UPDATE: Form = Form::Update(8);

fn row(request: u64, tokens: usize, drafts: usize, new: bool) -> StepRow {
    StepRow {
        drafts,
        ..StepRow::plain(id(request), tokens, new)
    }
}

/// Publishes one plain step of one request.
fn advance_by(composite: &mut Composite, request: u64, tokens: &[u32], new: bool) -> StepOutcome {
    let mut step = composite
        .reserve(&[row(request, tokens.len(), 0, new)])
        .unwrap();
    run(&mut step, UPDATE, &[tokens.to_vec()]);
    step.accept_all()
        .validate()
        .unwrap()
        .prepare()
        .unwrap()
        .publish()
}

fn committed(composite: &Composite, request: u64) -> (Vec<f32>, Vec<f32>) {
    let rows = composite.committed_rows(id(request)).unwrap();
    (rows[0].numbers(), rows[1].numbers())
}

#[test]
fn a_published_step_is_visible() {
    let mut composite = composite(UPDATE, 2, 8, false);
    let outcome = advance_by(&mut composite, 1, &[5, 6, 7], true);
    assert_eq!((outcome.rows[0].before, outcome.rows[0].committed), (0, 3));
    assert_eq!(composite.tokens(id(1)), Some(3));
    assert_rows(&composite.committed_rows(id(1)).unwrap(), &[5, 6, 7]);
    assert_sound(&composite);
}

#[test]
fn banks_alternate_and_versions_rise() {
    let mut composite = composite(UPDATE, 2, 8, false);
    for (version, active) in [(1, Bank::Zero), (2, Bank::One), (3, Bank::Zero)] {
        advance_by(&mut composite, 1, &[9], version == 1);
        let slot = composite.state.as_ref().unwrap().entries()[0].slot;
        let tokens = usize::try_from(version).unwrap();
        assert_eq!(
            slot,
            Slot::Committed {
                request: id(1),
                active,
                tokens,
                version
            }
        );
    }
}

#[test]
fn a_partial_prefix_moves_tokens_state_and_cache_together() {
    for form in [UPDATE, Form::State(8)] {
        let mut composite = composite(form, 2, 8, false);
        advance_by(&mut composite, 1, &[5, 6, 7], true);
        let mut step = composite.reserve(&[row(1, 4, 3, false)]).unwrap();
        run(&mut step, form, &[vec![8, 9, 10, 11]]);
        let step = step.accept(&[keep(2)]).unwrap();
        let outcome = step.validate().unwrap().prepare().unwrap().publish();
        assert_eq!(
            (outcome.rows[0].committed, outcome.rows[0].rejected),
            (5, 2)
        );
        assert_rows(&composite.committed_rows(id(1)).unwrap(), &[5, 6, 7, 8, 9]);
        assert_sound(&composite);
        let blocks = &composite.kv.as_ref().unwrap().table(id(1)).unwrap().blocks;
        assert_eq!(blocks.len(), 2, "five tokens in blocks of four");
        let mut step = composite.reserve(&[row(1, 1, 0, false)]).unwrap();
        assert_eq!(run(&mut step, form, &[vec![12]]), [[5, 6, 7, 8, 9, 12]]);
        step.accept_all()
            .validate()
            .unwrap()
            .prepare()
            .unwrap()
            .publish();
        assert_rows(
            &composite.committed_rows(id(1)).unwrap(),
            &[5, 6, 7, 8, 9, 12],
        );
    }
}

/// Walks a step of an admission and a resident to a phase and drops it there.
fn walk_to(composite: &mut Composite, phase: usize) {
    let rows = [row(2, 2, 0, true), row(1, 4, 3, false)];
    let rows = rows.map(|row| StepRow {
        head_tokens: 2,
        ..row
    });
    let mut step = composite.reserve(&rows).unwrap();
    assert_eq!(audit(&step.snapshot()), Vec::new());
    if phase == 0 {
        return;
    }
    run(&mut step, UPDATE, &[vec![1, 2], vec![8, 9, 10, 11]]);
    if phase == 1 {
        return;
    }
    let accepted = step
        .accept(&[
            keep(2),
            Keep {
                head_tokens: 1,
                ..keep(3)
            },
        ])
        .unwrap();
    if phase == 2 {
        return;
    }
    let validated = accepted.validate().unwrap();
    if phase == 3 {
        return;
    }
    let prepared = validated.prepare().unwrap();
    assert_eq!(audit(&prepared.snapshot()), Vec::new());
    prepared.discard();
}

fn leaving(phase: usize) {
    let mut composite = composite(UPDATE, 3, 8, true);
    advance_by(&mut composite, 1, &[5, 6, 7], true);
    let (before, bytes) = (composite.snapshot(), bits(&composite));
    walk_to(&mut composite, phase);
    assert_eq!(composite.snapshot(), before);
    assert_eq!(bits(&composite), bytes);
    assert_eq!(
        advance_by(&mut composite, 1, &[8], false).rows[0].committed,
        4
    );
    assert_rows(&composite.committed_rows(id(1)).unwrap(), &[5, 6, 7, 8]);
}

#[test]
fn leaving_after_reserve_restores_everything() {
    leaving(0);
}

#[test]
fn leaving_after_run_restores_everything() {
    leaving(1);
}

#[test]
fn leaving_after_accept_restores_everything() {
    leaving(2);
}

#[test]
fn leaving_after_validate_restores_everything() {
    leaving(3);
}

#[test]
fn leaving_after_prepare_restores_everything() {
    leaving(4);
}

#[test]
fn a_panic_during_a_step_discards_it() {
    let mut composite = composite(UPDATE, 3, 8, false);
    advance_by(&mut composite, 1, &[5, 6, 7], true);
    let before = composite.snapshot();
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _step = composite.reserve(&[row(2, 2, 0, true)]).unwrap();
        std::panic::resume_unwind(Box::new("the run broke off"));
    }));
    assert!(unwound.is_err());
    assert_eq!(composite.snapshot(), before);
    advance_by(&mut composite, 2, &[1], true);
    assert_sound(&composite);
}

#[test]
fn a_released_slot_reads_zero_and_its_handle_is_stale() {
    let mut composite = composite(UPDATE, 1, 8, false);
    advance_by(&mut composite, 1, &[5, 6, 7], true);
    let old = composite.standing.residents[&id(1)].slot.unwrap();
    composite.release(id(1)).unwrap();
    assert_sound(&composite);
    advance_by(&mut composite, 2, &[8], true);
    assert_rows(&composite.committed_rows(id(2)).unwrap(), &[8]);
    let pool = composite.state.as_ref().unwrap();
    assert_eq!(pool.tokens(id(1), old), Err(StateError::Stale(id(1))));
    assert_eq!(pool.tokens(id(2), old), Err(StateError::Stale(id(2))));
    assert_eq!(
        pool.validate_release(id(2), old),
        Err(StateError::Stale(id(2)))
    );
    assert_eq!(
        pool.committed_rows(id(2), old),
        Err(StateError::Stale(id(2)))
    );
    // Released a second time, it takes nothing from the one who has the slot now.
    let pool = composite.state.as_mut().unwrap();
    pool.release(old, &Permit::between_steps());
    assert_sound(&composite);
    assert_rows(&composite.committed_rows(id(2)).unwrap(), &[8]);
}

#[test]
fn the_handle_of_another_pool_is_foreign() {
    let mut one = composite(UPDATE, 1, 8, false);
    let mut two = composite(UPDATE, 1, 8, false);
    advance_by(&mut one, 1, &[5], true);
    advance_by(&mut two, 1, &[5], true);
    let handle = one.standing.residents[&id(1)].slot.unwrap();
    let pool = two.state.as_ref().unwrap();
    assert_eq!(pool.tokens(id(1), handle), Err(StateError::Foreign(id(1))));
    two.standing.residents.get_mut(&id(1)).unwrap().slot = Some(handle);
    let error = two.reserve(&[row(1, 1, 0, false)]).unwrap_err();
    assert!(matches!(error, StepError::State(StateError::Foreign(_))));
    let error = two.release(id(1)).unwrap_err();
    assert!(matches!(error, StepError::State(StateError::Foreign(_))));
    assert!(
        two.kv.as_ref().unwrap().table(id(1)).is_some(),
        "nothing was released"
    );
}

#[test]
fn what_cannot_be_reserved_changes_nothing() {
    let mut composite = composite(UPDATE, 3, 4, false);
    advance_by(&mut composite, 1, &[5, 6, 7], true);
    let before = composite.snapshot();
    let cases: [(Vec<StepRow>, &str, bool); 10] = [
        (vec![], "a step needs rows", false),
        (vec![row(1, 0, 0, false)], "every row needs tokens", false),
        (
            vec![row(1, 1, 0, true)],
            "request 1 is resident, its row says otherwise",
            false,
        ),
        (
            vec![row(2, 1, 0, false)],
            "request 2 is not resident",
            false,
        ),
        (
            vec![row(1, 2, 2, false)],
            "2 drafts in a row of 2 tokens",
            false,
        ),
        (vec![row(1, 9, 8, false)], "outputs hold 8", false),
        (
            vec![row(2, 1, 0, true), row(3, 1, 0, true), row(4, 1, 0, true)],
            "3 new requests, 2",
            true,
        ),
        (
            vec![row(2, 13, 0, true)],
            "4 cache blocks needed, 3 are free",
            true,
        ),
        (
            vec![row(2, 17, 0, true)],
            "request 2 needs 5 cache blocks, the cache has 4",
            false,
        ),
        (
            vec![row(1, 1, 0, false), row(1, 1, 0, false)],
            "request 1 already has",
            false,
        ),
    ];
    for (rows, expected, can_wait) in cases {
        let error = composite.reserve(&rows).unwrap_err();
        assert!(
            error.to_string().contains(expected),
            "{error} should say {expected}"
        );
        assert_eq!(error.can_wait(), can_wait, "{error}");
        assert_eq!(composite.snapshot(), before);
    }
    let error = composite
        .reserve(&[StepRow {
            head_tokens: 1,
            ..row(1, 1, 0, false)
        }])
        .unwrap_err();
    assert!(matches!(error, StepError::NoHead(_)));
    assert!(matches!(
        composite.release(id(7)),
        Err(StepError::Unknown(_))
    ));
    assert!(matches!(
        composite.committed_rows(id(7)),
        Err(StepError::Unknown(_))
    ));
    assert_eq!(composite.snapshot(), before);
}

#[test]
fn decisions_that_do_not_fit_discard_the_step() {
    let mut composite = composite(UPDATE, 3, 8, false);
    advance_by(&mut composite, 1, &[5, 6, 7], true);
    let before = composite.snapshot();
    let head = Keep {
        head_tokens: 1,
        ..keep(4)
    };
    let cases = [
        (vec![keep(4), keep(1)], "2 decisions for 1 rows"),
        (vec![], "0 decisions for 1 rows"),
        (vec![keep(5)], "5 of 4 tokens kept, at least 2 must be"),
        (vec![keep(1)], "1 of 4 tokens kept, at least 2 must be"),
        (vec![head], "the model has no draft head"),
    ];
    for (kept, expected) in cases {
        let step = composite.reserve(&[row(1, 4, 2, false)]).unwrap();
        let message = step.accept(&kept).unwrap_err().to_string();
        assert!(
            message.contains(expected),
            "{message} should say {expected}"
        );
        assert_eq!(composite.snapshot(), before);
    }
}

#[test]
fn a_prefix_that_was_not_captured_is_refused() {
    let mut composite = composite(UPDATE, 3, 8, false);
    let mut step = composite.reserve(&[row(1, 3, 0, true)]).unwrap();
    let state = step.state_mut().unwrap();
    let uncaptured = SelectError::NotCaptured {
        kept: 2,
        captured: 0,
    };
    let error = state.commit_prefix(0, keep(2).tokens).unwrap_err();
    assert_eq!(
        error,
        StateError::Select {
            row: 0,
            source: uncaptured
        }
    );
}

#[test]
fn the_head_commits_its_own_length() {
    let mut composite = composite(UPDATE, 2, 8, true);
    let rows = [
        StepRow {
            head_tokens: 6,
            ..row(1, 3, 0, true)
        },
        row(2, 2, 0, true),
    ];
    let mut step = composite.reserve(&rows).unwrap();
    let binding = step.head_binding(&[0]).unwrap();
    assert_eq!((binding.past, binding.block_table), (vec![0], vec![0, 1]));
    assert_eq!(step.head_buffers().len(), 1);
    run(&mut step, UPDATE, &[vec![1, 2, 3], vec![4, 5]]);
    let kept = [
        Keep {
            head_tokens: 2,
            ..keep(3)
        },
        keep(2),
    ];
    let step = step.accept(&kept).unwrap();
    step.validate().unwrap().prepare().unwrap().publish();
    assert_sound(&composite);
    assert_eq!(composite.head_tokens(id(1)), Some(2));
    assert_eq!(composite.head_tokens(id(2)), Some(0));
    let too_many = Keep {
        head_tokens: 1,
        ..keep(1)
    };
    let step = composite.reserve(&[row(1, 1, 0, false)]).unwrap();
    let error = step.accept(&[too_many]).unwrap_err();
    assert!(matches!(
        error,
        StepError::Head(KvError::KeptTooMany {
            kept: 1,
            tokens: 0,
            ..
        })
    ));
}

#[test]
fn models_without_a_kind_of_state_work() {
    let form = Form::Absent;
    let full = composite(form, 2, 8, false);
    let mut fixed_only = Composite::new(9, full.state, None, None);
    assert_eq!(
        (fixed_only.capacity(), fixed_only.cache_extent()),
        (2, (Blocks::default(), 0))
    );
    let step = fixed_only.reserve(&[row(1, 3, 0, true)]).unwrap();
    assert_eq!(step.paged_binding().past, [0]);
    step.accept_all()
        .validate()
        .unwrap()
        .prepare()
        .unwrap()
        .publish();
    let step = fixed_only.reserve(&[row(1, 1, 0, false)]).unwrap();
    assert_eq!(step.paged_binding().past, [3]);
    drop(step);
    assert_sound(&fixed_only);

    let mut paged_only = Composite::new(1, None, full.kv, None);
    let mut step = paged_only.reserve(&[row(1, 5, 4, true)]).unwrap();
    assert!(step.fixed_binding().read_rows.is_empty());
    assert_eq!(step.fixed_binding().capture_counts, [0]);
    assert_eq!(step.capture(), Capture::Off);
    assert!(step.buffers().fixed.is_empty());
    let step = step.accept(&[keep(2)]).unwrap();
    step.validate().unwrap().prepare().unwrap().publish();
    assert_eq!(paged_only.tokens(id(1)), Some(2));
    let error = paged_only.reserve(&[row(2, 1, 0, true)]).unwrap_err();
    assert!(matches!(error, StepError::Full { needed: 1, free: 0 }));
    paged_only.release(id(1)).unwrap();
    assert_sound(&paged_only);
}

#[test]
fn an_outdated_step_is_refused() {
    let mut composite = composite(UPDATE, 2, 8, false);
    advance_by(&mut composite, 1, &[5, 6, 7], true);
    let mut step = composite.reserve(&[row(1, 1, 0, false)]).unwrap();
    step.state_mut().unwrap().forge_version(0);
    let error = step.accept_all().validate().unwrap_err();
    assert_eq!(
        error.to_string(),
        "fixed state cannot be committed: the slot of request 1 changed while it was reserved"
    );
}

#[test]
fn a_torn_composite_refuses_steps_but_releases() {
    let mut composite = composite(UPDATE, 2, 8, false);
    advance_by(&mut composite, 1, &[5, 6, 7], true);
    composite.standing.health = Health::Torn;
    let error = composite.reserve(&[row(1, 1, 0, false)]).unwrap_err();
    assert!(matches!(error, StepError::Torn) && !error.can_wait());
    let rows = composite.committed_rows(id(1)).map(|rows| rows.len());
    assert!(matches!(rows, Err(StepError::Torn)));
    let cache = composite.committed_cache(id(1));
    assert!(matches!(cache, Err(StepError::Torn)));
    composite.release(id(1)).unwrap();
}

/// Publishing exists for prepared steps alone. For any other phase the name resolves to this trait; an inherent
/// `publish` for every phase would be preferred and change the type of the result.
trait NoPublish {
    fn publish(&self) -> &'static str {
        "there is nothing to publish"
    }
}

impl<Phase> NoPublish for Step<'_, Phase> {}

#[test]
fn only_a_prepared_step_can_be_published() {
    let publish = |step: Step<'_, Prepared>| -> StepOutcome { step.publish() };
    let mut composite = composite(UPDATE, 2, 8, false);
    let step = composite.reserve(&[row(1, 1, 0, true)]).unwrap();
    let _: &'static str = step.publish();
    let step = step.accept_all();
    let _: &'static str = step.publish();
    let step = step.validate().unwrap();
    let _: &'static str = step.publish();
    assert_eq!(publish(step.prepare().unwrap()).rows.len(), 1);
}

#[test]
#[cfg(debug_assertions)]
fn an_unwritten_final_state_shows_as_nan() {
    let mut composite = composite(UPDATE, 2, 8, false);
    let step = composite.reserve(&[row(1, 1, 0, true)]).unwrap();
    step.accept_all()
        .validate()
        .unwrap()
        .prepare()
        .unwrap()
        .publish();
    assert!(
        committed(&composite, 1)
            .0
            .iter()
            .all(|value| value.is_nan())
    );
}

#[test]
fn what_cannot_be_forked_changes_nothing() {
    let mut composite = composite(UPDATE, 2, 3, false);
    advance_by(&mut composite, 1, &[1, 2, 3, 4, 5], true);
    let before = composite.snapshot();
    let refused = |composite: &mut Composite, from, to, tokens| {
        let error = composite.fork(id(from), id(to), tokens).unwrap_err();
        assert_eq!(composite.snapshot(), before);
        error
    };
    let error = refused(&mut composite, 7, 2, 5);
    assert!(matches!(error, StepError::Unknown(_)), "{error}");
    let error = refused(&mut composite, 1, 1, 5);
    assert!(matches!(error, StepError::Residency { .. }), "{error}");
    for tokens in [0, 4, 6] {
        let error = refused(&mut composite, 1, 2, tokens);
        assert!(matches!(error, StepError::Position { .. }), "{error}");
    }
    // The last block goes to the fork; then places are out.
    composite.fork(id(1), id(2), 5).unwrap().accept_all();
    let step = composite.fork(id(1), id(2), 5).unwrap();
    let step = step.accept_all().validate().unwrap().prepare().unwrap();
    step.publish();
    let error = composite.fork(id(1), id(3), 5).unwrap_err();
    assert!(error.can_wait(), "{error}");
    assert_sound(&composite);
}
