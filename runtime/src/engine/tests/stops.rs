//! How often a step may fail, and what an engine does that cannot trust its state.

use super::stand_in::{self, Law};
use crate::engine::{Engine, EngineOptions, GenerateError, RequestHandle};
use crate::error::ErrorCode;
use crate::exec::{Decoder, Executor, Run};
use crate::model::Model;
use crate::request::{Request, SubmitError};
use crate::txn::Faults;
use crate::txn::tests::fixture::Form;

fn model(faults: &Faults) -> Model {
    stand_in::model(Form::Update(4), Law::Everything, faults)
}

fn request() -> Request {
    Request::from_ids([1, 2, 3]).max_new_tokens(8)
}

fn codes(handles: Vec<RequestHandle>) -> Vec<ErrorCode> {
    let code = |handle: RequestHandle| handle.wait().unwrap_err().code();
    handles.into_iter().map(code).collect()
}

#[test]
fn failures_that_pass_are_never_seen() {
    let faults = Faults::default();
    let engine = Engine::new(model(&faults), &EngineOptions::default()).unwrap();
    let expected = engine.generate(request()).unwrap().tokens;
    // The first call of a step fails, twice in a row: one less than ends the requests.
    faults.arm(0..2);
    assert_eq!(engine.generate(request()).unwrap().tokens, expected);
    assert!(faults.calls().len() > 2);
}

#[test]
fn failures_that_stay_end_every_request_and_spare_the_engine() {
    let faults = Faults::default();
    let engine = Engine::new(model(&faults), &EngineOptions::default()).unwrap();
    let expected = engine.generate(request()).unwrap();
    faults.arm(0..usize::MAX);
    let handles: Vec<RequestHandle> = (0..5).map(|_| engine.submit(request()).unwrap()).collect();
    assert_eq!(codes(handles), [ErrorCode::StepFailed; 5]);
    assert_eq!(engine.unfinished(), 0);
    faults.arm(0..0);
    let after = engine.generate(request()).unwrap();
    assert_eq!(
        (after.tokens, after.reason),
        (expected.tokens, expected.reason)
    );
}

/// Writes where nothing may be written.
#[derive(Debug)]
struct Vandal(Decoder);

impl Executor for Vandal {
    fn execute(&mut self, run: Run<'_>) -> Result<(), String> {
        let Run {
            inputs,
            paged,
            fixed,
            capture,
            outputs,
            want_hidden,
            ..
        } = run;
        let zero_row = fixed[0].bank.shape()[0] - 1;
        let row = vec![1.0; fixed[0].bank.row_elements()];
        let done = self
            .0
            .run(inputs, paged, fixed, capture, outputs, want_hidden);
        fixed[0].bank.write_row_f32(zero_row, &row).unwrap();
        done.map_err(|error| error.to_string())
    }
}

#[test]
fn an_engine_whose_state_contradicts_itself_stops() {
    for (audit, finishes) in [(true, false), (false, true)] {
        let mut model = model(&Faults::default());
        let (signature, state) = (
            model.decoder.signature().clone(),
            model.decoder.state().clone(),
        );
        model.decoder = Decoder::with(Box::new(Vandal(model.decoder)), signature, state);
        let engine = Engine::new(model, &EngineOptions::default().audit(audit)).unwrap();
        match engine.generate(request()) {
            Ok(_) => assert!(finishes),
            Err(error) => {
                assert!(
                    !finishes && error.to_string().contains("I2: a zero row was written"),
                    "{error}"
                );
                assert_eq!(error.code(), ErrorCode::StateContradictory);
                let stopped = engine.generate(request()).unwrap_err();
                let stopped = matches!(&stopped, GenerateError::Submit(SubmitError::Stopped))
                    || stopped.code() == ErrorCode::EngineStopped;
                assert!(stopped);
            }
        }
    }
}

/// Breaks off in its third run.
#[derive(Debug)]
struct Panicking(Decoder, usize);

impl Executor for Panicking {
    fn execute(&mut self, run: Run<'_>) -> Result<(), String> {
        self.1 += 1;
        assert!(self.1 < 3, "broken on purpose");
        let Run {
            inputs,
            paged,
            fixed,
            capture,
            outputs,
            want_hidden,
            ..
        } = run;
        let done = self
            .0
            .run(inputs, paged, fixed, capture, outputs, want_hidden);
        done.map_err(|error| error.to_string())
    }
}

#[test]
fn a_panic_of_the_thread_tells_callers_why() {
    let mut model = model(&Faults::default());
    let (signature, state) = (
        model.decoder.signature().clone(),
        model.decoder.state().clone(),
    );
    model.decoder = Decoder::with(Box::new(Panicking(model.decoder, 0)), signature, state);
    let engine = Engine::new(model, &EngineOptions::default()).unwrap();
    let error = engine.generate(request()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::EngineStopped, "{error}");
    let why = error.to_string();
    assert!(why.contains("panicked: broken on purpose"), "{why}");
}
