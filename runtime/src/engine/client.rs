//! What every handle of an engine needs to reach its thread.

use super::copies::CopyCommand;
use super::kept::{EngineId, KeptCounters, KeptError};
use super::pool_usage::PoolUsage;
use super::running::RequestHandle;
use super::ticket::Turnstile;
use super::worker::{Command, Submission};
use crate::ids::RequestId;
use crate::request::{ModelLimits, Request, SubmitError};
use crate::saved::Layout;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

/// The way to an engine's thread, shared by the engine, its requests and its kept states. The thread outlives none of
/// them: it ends with the last [`Engine`](super::Engine).
#[derive(Debug)]
pub(super) struct Client {
    pub(super) id: EngineId,
    pub(super) limits: ModelLimits,
    pub(super) gate: Turnstile,
    pub(super) counters: Arc<KeptCounters>,
    /// What its states look like in a file.
    pub(super) layout: Layout,
    commands: Sender<Command>,
    next: AtomicU64,
    thread: OnceLock<ThreadId>,
}

impl Client {
    pub(super) fn new(
        commands: Sender<Command>,
        limits: ModelLimits,
        max_unfinished: usize,
        counters: Arc<KeptCounters>,
        layout: Layout,
    ) -> Self {
        Self {
            id: EngineId::fresh(),
            limits,
            gate: Turnstile::new(max_unfinished),
            counters,
            layout,
            commands,
            next: AtomicU64::new(1),
            thread: OnceLock::new(),
        }
    }

    /// An identity that no request or state of the engine has had.
    pub(super) fn fresh(&self) -> RequestId {
        RequestId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Asks something of the thread. A thread that has ended does nothing any more.
    pub(super) fn tell(&self, command: Command) {
        let _ = self.commands.send(command);
    }

    /// Asks the thread for a copy and waits for the answer, which it gives between two steps.
    ///
    /// # Errors
    /// Threads that have ended. The thread itself, in a draft source or an observer, would wait for ever: it is refused.
    pub(super) fn ask<T>(
        &self,
        command: impl FnOnce(SyncSender<T>) -> CopyCommand,
    ) -> Result<T, KeptError> {
        if self.thread.get() == Some(&std::thread::current().id()) {
            let reason = "states are not copied while a step runs".to_owned();
            return Err(KeptError::Failed { reason });
        }
        let (reply, answer) = sync_channel(1);
        let sent = self.commands.send(Command::Copy(command(reply)));
        sent.map_err(|_| KeptError::Stopped)?;
        answer.recv().map_err(|_| KeptError::Stopped)
    }

    /// Tells which thread answers.
    pub(super) fn served_by(&self, thread: ThreadId) {
        let _ = self.thread.set(thread);
    }

    /// As [`Engine::pool_usage`](super::Engine::pool_usage).
    pub(super) fn pool_usage(&self) -> Option<PoolUsage> {
        if self.thread.get() == Some(&std::thread::current().id()) {
            return None;
        }
        let (reply, answer) = sync_channel(1);
        self.commands.send(Command::PoolUsage(reply)).ok()?;
        answer.recv().ok()
    }

    /// As [`Engine::submit`](super::Engine::submit).
    pub(super) fn submit(
        self: &Arc<Self>,
        request: &Request,
    ) -> Result<RequestHandle, SubmitError> {
        let id = self.fresh();
        let prepared = request.prepare(&self.limits, fresh_seed(id), self.id)?;
        let ticket = self.gate.enter().ok_or(SubmitError::QueueFull)?;
        let seed = prepared.sampler.seed();
        let (events, receiver) = async_channel::unbounded();
        let submission = Submission {
            id,
            prepared,
            client: Arc::clone(self),
            events,
            ticket,
        };
        let command = Command::Submit(Box::new(submission));
        self.commands
            .send(command)
            .map_err(|_| SubmitError::Stopped)?;
        Ok(RequestHandle::new(id, seed, receiver, Arc::clone(self)))
    }
}

/// A seed that differs between requests and between processes.
fn fresh_seed(id: RequestId) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(id.value())
}
