//! The engine's thread: commands in, steps, events out.

use super::active::Events;
use super::client::Client;
use super::copies::CopyCommand;
use super::core::Core;
use super::error::EngineError;
use super::pool_usage::PoolUsage;
use super::step::Outcome;
use super::ticket::Ticket;
use crate::ids::RequestId;
use crate::request::{Prepared, RequestError};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};

/// Failed steps in a row after which every request is failed: the state is whole, but nothing moves.
const MAX_FAILURES: usize = 3;

/// What handles ask of the thread.
#[derive(Debug)]
pub(super) enum Command {
    /// Run a request.
    Submit(Box<Submission>),
    /// End a request.
    Cancel(RequestId),
    /// Free a kept state.
    Release(RequestId),
    /// Copy a state.
    Copy(CopyCommand),
    /// Tell how full the pools are.
    PoolUsage(SyncSender<PoolUsage>),
    /// End every request and the thread.
    Shutdown,
}

/// A checked request and where its events go.
#[derive(Debug)]
pub(super) struct Submission {
    pub(super) id: RequestId,
    pub(super) prepared: Prepared,
    /// For the handle to the state it leaves.
    pub(super) client: Arc<Client>,
    pub(super) events: Events,
    /// Its place among the unfinished requests.
    pub(super) ticket: Ticket,
}

/// Runs until a shutdown or until every handle is gone.
pub(super) fn run(mut core: Core, commands: &Receiver<Command>) {
    let caught = catch_unwind(AssertUnwindSafe(|| work(&mut core, commands)));
    let reason = match caught {
        Ok(None) => return,
        Ok(Some(reason)) => reason,
        Err(panic) => format!("its thread panicked: {}", panic_text(&*panic)),
    };
    tracing::info!(reason, "the engine stops");
    // The pools may be what a panic left, so nothing but the events is touched.
    let error = RequestError::from(&EngineError::Stopped { reason });
    for active in &mut core.requests {
        active.fail(error.clone());
    }
}

/// Steps until the engine is to end; tells why, or nothing where every request knows already.
fn work(core: &mut Core, commands: &Receiver<Command>) -> Option<String> {
    let mut failures = 0;
    while take_commands(core, commands) {
        match core.step() {
            Ok(Outcome::Ran | Outcome::Idle) => failures = 0,
            Err(error @ EngineError::Invariant { .. }) => {
                tracing::error!(%error, "the engine stops");
                core.fail_all(&error);
                return None;
            }
            Err(error) => {
                failures += 1;
                tracing::warn!(%error, failures, "a step was discarded");
                if failures >= MAX_FAILURES {
                    core.fail_all(&error);
                    failures = 0;
                }
            }
        }
    }
    Some("it was shut down".to_owned())
}

/// What a panic said.
fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

/// Takes what has arrived, and waits for something when there is nothing to run. `false` ends the thread.
fn take_commands(core: &mut Core, commands: &Receiver<Command>) -> bool {
    loop {
        let command = if core.requests.is_empty() {
            match commands.recv() {
                Ok(command) => command,
                Err(_) => return false,
            }
        } else {
            match commands.try_recv() {
                Ok(command) => command,
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        };
        match command {
            Command::Submit(submission) => core.submit(*submission),
            Command::Cancel(id) => core.cancel(id),
            Command::Release(id) => core.release_kept(id),
            Command::Copy(command) => core.copy(command),
            Command::PoolUsage(reply) => {
                // Who asked may have gone.
                let _ = reply.send(core.pool_usage());
            }
            Command::Shutdown => return false,
        }
    }
}
