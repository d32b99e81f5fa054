//! How often a step may fail, and what an engine does that cannot trust its state.

use super::stand_in::{self, Law};
use crate::engine::{Engine, EngineOptions, GenerateError, RequestHandle};
use crate::error::ErrorCode;
use crate::exec::{Decoder, Executor, Run};
use crate::model::Model;
use crate::request::{Request, SubmitError};
use crate::speculate::{DraftPolicy, DraftSource};
use crate::txn::Faults;
use crate::txn::tests::fixture::Form;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

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

/// A model whose decoder is run by another one.
fn run_by<E: Executor + 'static>(made: impl FnOnce(Decoder) -> E) -> Model {
    let mut model = model(&Faults::default());
    let (signature, state) = (
        model.decoder.signature().clone(),
        model.decoder.state().clone(),
    );
    model.decoder = Decoder::with(Box::new(made(model.decoder)), signature, state);
    model
}

fn pass_on(decoder: &mut Decoder, run: Run<'_>) -> Result<(), String> {
    let done = decoder.run(
        run.inputs,
        run.paged,
        run.fixed,
        run.capture,
        run.outputs,
        run.want_hidden,
    );
    done.map_err(|error| error.to_string())
}

/// Writes where nothing may be written.
#[derive(Debug)]
struct Vandal(Decoder);

impl Executor for Vandal {
    fn execute(&mut self, run: Run<'_>) -> Result<(), String> {
        let Run { fixed, .. } = run;
        let zero_row = fixed[0].bank.shape()[0] - 1;
        let row = vec![1.0; fixed[0].bank.row_elements()];
        let done = pass_on(
            &mut self.0,
            Run {
                fixed: &mut *fixed,
                ..run
            },
        );
        fixed[0].bank.write_row_f32(zero_row, &row).unwrap();
        done
    }
}

#[test]
fn an_engine_whose_state_contradicts_itself_stops() {
    for (audit, finishes) in [(true, false), (false, true)] {
        let options = EngineOptions::default().audit(audit);
        let engine = Engine::new(run_by(Vandal), &options).unwrap();
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
        pass_on(&mut self.0, run)
    }
}

#[test]
fn a_panic_of_the_thread_tells_callers_why() {
    let model = run_by(|decoder| Panicking(decoder, 0));
    let engine = Engine::new(model, &EngineOptions::default()).unwrap();
    let error = engine.generate(request()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::EngineStopped, "{error}");
    let why = error.to_string();
    assert!(why.contains("panicked: broken on purpose"), "{why}");
}

/// Holds the engine that asks it, and lets it wait until nobody else does.
struct Holding {
    _engine: Engine,
    /// Goes after the engine.
    _watch: Watch,
    alone: Mutex<Receiver<()>>,
}

/// Tells whether it was dropped by a panic.
struct Watch(Sender<bool>);

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.0.send(std::thread::panicking());
    }
}

impl DraftSource for Holding {
    fn propose(&self, _: &[u32], _: usize) -> Vec<u32> {
        // An error once the sender is gone.
        let _ = self.alone.lock().unwrap().recv();
        Vec::new()
    }
}

/// The last handle of an engine may go with a request that ends: the engine then shuts down as it does for any other.
#[test]
fn an_engine_may_be_dropped_on_its_own_thread() {
    let options = EngineOptions::default().draft_policy(DraftPolicy::Fixed);
    let engine = Engine::new(model(&Faults::default()), &options).unwrap();
    let ((others, alone), (watch, panicked)) = (channel(), channel());
    let holding = Holding {
        _engine: engine.clone(),
        _watch: Watch(watch),
        alone: Mutex::new(alone),
    };
    let short = engine.submit(request().drafts(holding)).unwrap();
    let long = request().max_new_tokens(200).ignore_eos(true);
    let long = engine.submit(long).unwrap();
    drop((engine, others));
    short.wait().unwrap();
    let error = long.wait().unwrap_err();
    assert_eq!(error.code(), ErrorCode::EngineStopped);
    assert_eq!(panicked.recv(), Ok(false));
}
