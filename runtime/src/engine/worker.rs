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
use crate::request::Prepared;
use crate::speculate::SpeculationStats;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};

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
/// `totals` shows how well drafts did.
pub(super) fn run(mut core: Core, commands: &Receiver<Command>, totals: &Mutex<SpeculationStats>) {
    let mut failures = 0;
    while take_commands(&mut core, commands) {
        let outcome = core.step();
        totals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone_from(&core.totals);
        match outcome {
            Ok(Outcome::Ran | Outcome::Idle) => failures = 0,
            Err(error @ EngineError::Invariant { .. }) => {
                tracing::error!(%error, "the engine stops");
                core.fail_all(&error);
                return;
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
    core.fail_all(&EngineError::Stopped {
        reason: "it was shut down".to_owned(),
    });
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
