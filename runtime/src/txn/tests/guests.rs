//! Participants of the caller: one exit each, and their failures leave everybody as before.

use super::fixture::*;
use crate::txn::{Participant, ParticipantError, Permit, StepError, StepRow};
use std::cell::RefCell;

/// What a guest does when it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    Agree,
    RefuseToValidate,
    FailToPrepare,
    PanicInPublish,
}

/// Writes down what happens to it.
struct Guest<'a> {
    log: &'a RefCell<Vec<&'static str>>,
    behaviour: Behaviour,
}

impl Participant for Guest<'_> {
    fn name(&self) -> &'static str {
        "guest"
    }
    fn validate(&self) -> Result<(), ParticipantError> {
        self.log.borrow_mut().push("validate");
        if self.behaviour == Behaviour::RefuseToValidate {
            return Err("outdated".into());
        }
        Ok(())
    }
    fn prepare(&mut self) -> Result<(), ParticipantError> {
        self.log.borrow_mut().push("prepare");
        if self.behaviour == Behaviour::FailToPrepare {
            return Err("no room".into());
        }
        Ok(())
    }
    fn publish(&mut self, _permit: &Permit) {
        self.log.borrow_mut().push("publish");
        if self.behaviour == Behaviour::PanicInPublish {
            std::panic::resume_unwind(Box::new("a broken promise"));
        }
    }
    fn discard(&mut self) {
        self.log.borrow_mut().push("discard");
    }
}

/// Runs a step with two guests; the second one behaves as told.
fn step_with(behaviour: Behaviour) -> (Vec<&'static str>, Result<(), StepError>) {
    let log = RefCell::new(Vec::new());
    let mut composite = composite(Form::Update(4), 2, 8, false);
    let before = composite.snapshot();
    let result = (|| {
        let mut step = composite.reserve(&[StepRow::plain(id(1), 2, true)])?;
        run(&mut step, Form::Update(4), &[vec![1, 2]]);
        for behaviour in [Behaviour::Agree, behaviour] {
            step.join(Box::new(Guest {
                log: &log,
                behaviour,
            }));
        }
        step.accept_all().validate()?.prepare()?.publish();
        Ok(())
    })();
    if result.is_err() {
        assert_eq!(composite.snapshot(), before);
    } else {
        assert_eq!(composite.tokens(id(1)), Some(2));
    }
    assert_sound(&composite);
    (log.into_inner(), result)
}

#[test]
fn guests_walk_through_every_phase() {
    let (log, result) = step_with(Behaviour::Agree);
    result.unwrap();
    let twice = [
        "validate", "validate", "prepare", "prepare", "publish", "publish",
    ];
    assert_eq!(log, twice);
}

#[test]
fn a_refusal_discards_everybody() {
    let (log, result) = step_with(Behaviour::RefuseToValidate);
    let message = result.unwrap_err().to_string();
    assert_eq!(message, "guest cannot be committed: outdated");
    assert_eq!(log, ["validate", "validate", "discard", "discard"]);
}

#[test]
fn a_failure_to_prepare_discards_everybody() {
    let (log, result) = step_with(Behaviour::FailToPrepare);
    assert_eq!(
        result.unwrap_err().to_string(),
        "guest cannot be prepared: no room"
    );
    assert_eq!(
        log,
        [
            "validate", "validate", "prepare", "prepare", "discard", "discard"
        ]
    );
}

#[test]
fn a_panic_in_publish_leaves_a_composite_that_says_so() {
    let log = RefCell::new(Vec::new());
    let mut composite = composite(Form::Update(4), 2, 8, false);
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut step = composite
            .reserve(&[StepRow::plain(id(1), 2, true)])
            .unwrap();
        step.join(Box::new(Guest {
            log: &log,
            behaviour: Behaviour::PanicInPublish,
        }));
        step.accept_all()
            .validate()
            .unwrap()
            .prepare()
            .unwrap()
            .publish();
    }));
    assert!(unwound.is_err());
    assert_eq!(log.into_inner(), ["validate", "prepare", "publish"]);
    let error = composite
        .reserve(&[StepRow::plain(id(1), 1, false)])
        .unwrap_err();
    assert!(matches!(error, StepError::Torn));
    assert!(!composite.snapshot().healthy);
}
