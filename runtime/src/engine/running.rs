//! A running request, as its caller holds it.

use super::client::Client;
use super::completion::{Completion, GenerateError};
use super::kept::{Kept, KeptError};
use super::worker::Command;
use crate::ids::RequestId;
use crate::request::{Event, RequestError};
use std::ops::ControlFlow;
use std::sync::Arc;

/// A running request: an iterator over its events. Dropping it before the end cancels the request.
///
/// ```no_run
/// # use pawl::{Engine, EngineOptions, Event, LoadOptions, Model, Request};
/// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
/// # let engine = Engine::new(model, &EngineOptions::default())?;
/// for event in engine.submit(Request::from_text("def main():").max_new_tokens(32))? {
///     match event {
///         Event::Tokens { text, .. } => print!("{text}"),
///         Event::Finished { reason, .. } => println!("\n[{reason}]"),
///         _ => {}
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RequestHandle {
    id: RequestId,
    seed: u64,
    events: async_channel::Receiver<Event>,
    client: Arc<Client>,
}

impl RequestHandle {
    pub(super) fn new(
        id: RequestId,
        seed: u64,
        events: async_channel::Receiver<Event>,
        client: Arc<Client>,
    ) -> Self {
        Self {
            id,
            seed,
            events,
            client,
        }
    }

    /// The request's identity.
    ///
    /// ```no_run
    /// # use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
    /// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// # let engine = Engine::new(model, &EngineOptions::default())?;
    /// let handle = engine.submit(Request::from_ids([1]).max_new_tokens(4))?;
    /// println!("{}", handle.id());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// The seed it samples with, given or chosen: another request with it gives the same tokens.
    ///
    /// ```no_run
    /// # use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
    /// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// # let engine = Engine::new(model, &EngineOptions::default())?;
    /// let handle = engine.submit(Request::from_ids([1]).max_new_tokens(4))?;
    /// println!("to repeat it: --seed {}", handle.seed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Waits for the next event; `None` after the last.
    ///
    /// ```no_run
    /// # use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
    /// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// # let engine = Engine::new(model, &EngineOptions::default())?;
    /// let mut handle = engine.submit(Request::from_ids([1]).max_new_tokens(4))?;
    /// while let Some(event) = handle.next_event() {
    ///     println!("{event:?}");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.recv_blocking().ok()
    }

    /// The next event without waiting; `None` when there is none yet, or none any more.
    ///
    /// ```no_run
    /// # use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
    /// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// # let engine = Engine::new(model, &EngineOptions::default())?;
    /// let mut handle = engine.submit(Request::from_ids([1]).max_new_tokens(4))?;
    /// match handle.try_next_event() {
    ///     Some(event) => println!("{event:?}"),
    ///     None => println!("nothing yet"),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_next_event(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    /// The next event, for asynchronous callers on any executor; `None` after the last.
    ///
    /// ```no_run
    /// async fn print(mut handle: pawl::RequestHandle) {
    ///     while let Some(event) = handle.next_event_async().await {
    ///         println!("{event:?}");
    ///     }
    /// }
    /// # let _ = print;
    /// ```
    pub async fn next_event_async(&mut self) -> Option<Event> {
        self.events.recv().await.ok()
    }

    /// Asks the engine to end the request. Tokens that were committed before still arrive, then the last event; text that
    /// was held back because it may begin a stop string comes with it.
    ///
    /// ```no_run
    /// # use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
    /// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// # let engine = Engine::new(model, &EngineOptions::default())?;
    /// let handle = engine.submit(Request::from_ids([1]))?;
    /// handle.cancel();
    /// println!("{}", handle.wait()?.reason);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(&self) {
        self.client.tell(Command::Cancel(self.id));
    }

    /// A state of its own for what the request has committed by now; the request goes on. A request that continues from
    /// it can go another way.
    ///
    /// ```no_run
    /// # use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
    /// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// # let engine = Engine::new(model, &EngineOptions::default())?;
    /// let mut running = engine.submit(Request::from_text("def main():").max_new_tokens(64))?;
    /// running.next_event();
    /// let branch = running.fork()?;
    /// let prompt = [branch.tokens(), &[7]].concat();
    /// let other = engine.submit(Request::from_ids(prompt).continue_from(branch))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Requests that have ended or not yet run; lack of room.
    pub fn fork(&self) -> Result<Kept, KeptError> {
        Kept::fork_of(self.id, &self.client)
    }

    /// Ends the request from elsewhere, while its events are waited for here.
    ///
    /// ```no_run
    /// # use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
    /// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// # let engine = Engine::new(model, &EngineOptions::default())?;
    /// let handle = engine.submit(Request::from_ids([1]))?;
    /// let canceller = handle.canceller();
    /// std::thread::spawn(move || canceller.cancel());
    /// println!("{}", handle.wait()?.reason);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller {
            id: self.id,
            client: Arc::clone(&self.client),
        }
    }

    /// Waits for the end and gathers what comes until then: tokens and text of events that were read before are with who read
    /// them. Counts and reason are those of the whole request.
    ///
    /// # Errors
    /// The engine could not go on with the request, or stopped.
    ///
    /// ```no_run
    /// # use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
    /// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// # let engine = Engine::new(model, &EngineOptions::default())?;
    /// let handle = engine.submit(Request::from_text("import os").max_new_tokens(8))?;
    /// println!("{}", handle.wait()?.text);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait(self) -> Result<Completion, GenerateError> {
        self.wait_streaming(|_| {})
    }

    /// Waits for the end, passing on each piece of text as it comes, and gathers everything.
    ///
    /// # Errors
    /// The engine could not go on with the request, or stopped.
    ///
    /// ```no_run
    /// # use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
    /// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// # let engine = Engine::new(model, &EngineOptions::default())?;
    /// let handle = engine.submit(Request::from_text("import os").max_new_tokens(8))?;
    /// let answer = handle.wait_streaming(|text| print!("{text}"))?;
    /// println!("\n[{}]", answer.reason);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_streaming(
        self,
        mut on_text: impl FnMut(&str),
    ) -> Result<Completion, GenerateError> {
        self.wait_while(|text| {
            on_text(text);
            ControlFlow::Continue(())
        })
    }

    /// As [`RequestHandle::wait_streaming`], but cancels the request once `on_text` breaks off.
    ///
    /// # Errors
    /// The engine could not go on with the request, or stopped.
    ///
    /// ```no_run
    /// # use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
    /// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// # let engine = Engine::new(model, &EngineOptions::default())?;
    /// use std::io::Write;
    /// use std::ops::ControlFlow;
    ///
    /// let handle = engine.submit(Request::from_text("import os").max_new_tokens(8))?;
    /// let answer = handle.wait_while(|text| match write!(std::io::stdout(), "{text}") {
    ///     Ok(()) => ControlFlow::Continue(()),
    ///     Err(_) => ControlFlow::Break(()),
    /// })?;
    /// # let _ = answer;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_while(
        mut self,
        mut on_text: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Completion, GenerateError> {
        let mut tokens = Vec::new();
        let mut text = String::new();
        while let Some(event) = self.next_event() {
            match event {
                Event::Tokens {
                    tokens: new,
                    text: piece,
                } => {
                    if on_text(&piece).is_break() {
                        self.cancel();
                    }
                    tokens.extend(new);
                    text.push_str(&piece);
                }
                Event::Finished {
                    error: Some(error), ..
                } => return Err(error.into()),
                Event::Finished {
                    reason,
                    stop,
                    usage,
                    stats,
                    kept,
                    error: None,
                } => {
                    let seed = self.seed;
                    return Ok(Completion {
                        tokens,
                        text,
                        reason,
                        stop,
                        usage,
                        stats: *stats,
                        kept,
                        seed,
                    });
                }
            }
        }
        Err(GenerateError::Request(RequestError::stopped()))
    }
}

impl Iterator for RequestHandle {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.next_event()
    }
}

impl Drop for RequestHandle {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// Cancels one request, from any thread. Holding it keeps nothing alive.
///
/// ```no_run
/// fn cancel_all(requests: &[pawl::Canceller]) {
///     requests.iter().for_each(pawl::Canceller::cancel);
/// }
/// # let _ = cancel_all;
/// ```
#[derive(Clone, Debug)]
pub struct Canceller {
    id: RequestId,
    client: Arc<Client>,
}

impl Canceller {
    /// As [`RequestHandle::cancel`].
    ///
    /// ```no_run
    /// # use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
    /// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// # let engine = Engine::new(model, &EngineOptions::default())?;
    /// let handle = engine.submit(Request::from_ids([1]))?;
    /// handle.canceller().cancel();
    /// # drop(handle);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(&self) {
        self.client.tell(Command::Cancel(self.id));
    }
}
