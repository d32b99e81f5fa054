//! What callers hold. It can be sent to and shared between threads.

use super::client::Client;
use super::completion::{Completion, GenerateError};
use super::copies::CopyCommand;
use super::core::{self, Core};
use super::kept::{Kept, KeptStats};
use super::limits;
use super::options::EngineOptions;
use super::pool_usage::PoolUsage;
use super::running::RequestHandle;
use super::worker::{self, Command};
use crate::error::LoadError;
use crate::exec::loaded_version;
use crate::model::Model;
use crate::request::{Request, SubmitError};
use crate::sample::SamplingParams;
use crate::saved::{self, Layout, StateFileError};
use crate::settings;
use crate::speculate::control::CostKey;
use crate::speculate::{EffectiveSpeculation, SpeculationStats};
use crate::text::Tokenizer;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// A model that answers requests, many per step, on a thread of its own.
///
/// Cloning gives another handle to the same engine. The thread ends, and every request with it, when the last handle
/// is dropped.
///
/// ```no_run
/// use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
///
/// let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
/// let engine = Engine::new(model, &EngineOptions::default())?;
/// let answer = engine.generate(Request::from_text("def main():").max_new_tokens(32))?;
/// println!("{}", answer.text);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Engine {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    client: Arc<Client>,
    warnings: Vec<String>,
    speculation: EffectiveSpeculation,
    totals: Arc<Mutex<SpeculationStats>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Engine {
    /// Allocates the pools and starts the thread.
    ///
    /// # Errors
    /// A tokenizer that cannot be used, speculation that the model cannot do, a setting that cannot be understood, and
    /// lack of memory.
    ///
    /// ```no_run
    /// use pawl::{Engine, EngineOptions, LoadOptions, Model};
    ///
    /// let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// let engine = Engine::new(model, &EngineOptions::default().max_unfinished(8))?;
    /// # let _ = engine;
    /// # Ok::<(), pawl::LoadError>(())
    /// ```
    pub fn new(model: Model, options: &EngineOptions) -> Result<Self, LoadError> {
        let limits = limits::of(&model)?;
        let warnings = limits::unapplied(&model.config.search);
        let mut options = options.clone();
        let variable = settings::speculation()?;
        options.draft_policy = options.draft_policy.or(settings::draft_policy()?);
        let wanted = options.wanted().or(variable);
        let speculation = EffectiveSpeculation::choose(&wanted, core::offer(&model))?;
        options.audit = options.audit.or(settings::audit()?);
        let heads = speculation.mode.heads();
        let layout = Layout::of(&model, model.limits.sequence, heads);
        options.cost_folder = options.cost_folder.or(settings::cost_folder().flatten());
        let costs = cost_store(&model, &options);
        let core = Core::new(model, &options, speculation.clone(), costs).map_err(|error| {
            LoadError::Memory {
                reason: error.to_string(),
            }
        })?;
        let (counters, totals) = (Arc::clone(&core.counters), Arc::clone(&core.shown));
        let (commands, receiver) = channel();
        let thread = std::thread::Builder::new()
            .name("pawl-engine".to_owned())
            .spawn(move || worker::run(core, &receiver))
            .map_err(|error| LoadError::Memory {
                reason: format!("engine thread: {error}"),
            })?;
        let client = Client::new(commands, limits, options.max_unfinished, counters, layout);
        client.served_by(thread.thread().id());
        let shared = Shared {
            client: Arc::new(client),
            warnings,
            speculation,
            totals,
            thread: Mutex::new(Some(thread)),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Submits a request and returns at once. Its events come through the handle.
    ///
    /// # Errors
    /// Requests that cannot run on this model, a full queue, and an engine that has stopped.
    ///
    /// ```no_run
    /// # use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
    /// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// # let engine = Engine::new(model, &EngineOptions::default())?;
    /// let first = engine.submit(Request::from_text("class Stack:").max_new_tokens(64))?;
    /// let second = engine.submit(Request::from_text("import os").max_new_tokens(64))?;
    /// println!("{}\n{}", first.wait()?.text, second.wait()?.text);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn submit(&self, request: Request) -> Result<RequestHandle, SubmitError> {
        self.shared.client.submit(&request)
    }

    /// Runs one request to its end.
    ///
    /// # Errors
    /// As [`Engine::submit`], and failures while it runs.
    ///
    /// ```no_run
    /// # use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
    /// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// # let engine = Engine::new(model, &EngineOptions::default())?;
    /// let answer = engine.generate(Request::from_ids([1, 2, 3]).max_new_tokens(16))?;
    /// assert!(answer.tokens.len() <= 16);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn generate(&self, request: Request) -> Result<Completion, GenerateError> {
        self.submit(request)?.wait()
    }

    /// Runs requests side by side, each to its end, and returns their completions in order.
    ///
    /// ```no_run
    /// # use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
    /// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// # let engine = Engine::new(model, &EngineOptions::default())?;
    /// let prompts = ["import os", "class A:"];
    /// let answers = engine.generate_all(prompts.map(|p| Request::from_text(p).max_new_tokens(8)))?;
    /// assert_eq!(answers.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The first request that cannot be submitted or fails; the others are cancelled.
    pub fn generate_all(
        &self,
        requests: impl IntoIterator<Item = Request>,
    ) -> Result<Vec<Completion>, GenerateError> {
        let submitted = requests.into_iter().map(|request| self.submit(request));
        let handles = submitted.collect::<Result<Vec<_>, _>>()?;
        handles.into_iter().map(RequestHandle::wait).collect()
    }

    /// Requests that are submitted and have not ended.
    ///
    /// ```no_run
    /// # use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
    /// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// # let engine = Engine::new(model, &EngineOptions::default())?;
    /// let handle = engine.submit(Request::from_ids([1]).max_new_tokens(64))?;
    /// assert!(engine.unfinished() <= 1);
    /// # drop(handle);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.shared.client.gate.unfinished()
    }

    /// Settings of the model that would change tokens and are not applied.
    ///
    /// ```no_run
    /// # use pawl::{Engine, EngineOptions, LoadOptions, Model};
    /// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// # let engine = Engine::new(model, &EngineOptions::default())?;
    /// for warning in engine.warnings() {
    ///     eprintln!("warning: {warning}");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.shared.warnings
    }

    /// Which speculation runs, and why it is off where nobody switched it off.
    ///
    /// ```no_run
    /// # use pawl::{Engine, EngineOptions, LoadOptions, Model};
    /// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// # let engine = Engine::new(model, &EngineOptions::default())?;
    /// let speculation = engine.speculation();
    /// println!("{} with at most {} drafts", speculation.mode, speculation.max_drafts);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn speculation(&self) -> &EffectiveSpeculation {
        &self.shared.speculation
    }

    /// How well drafts did, over all requests so far.
    ///
    /// ```no_run
    /// # use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
    /// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// # let engine = Engine::new(model, &EngineOptions::default())?;
    /// engine.generate(Request::from_ids([1]).max_new_tokens(64))?;
    /// println!("{:.0} % of drafts accepted", engine.speculation_stats().acceptance() * 100.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn speculation_stats(&self) -> SpeculationStats {
        let totals = self.shared.totals.lock();
        totals.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many states are kept for finished requests, and how many had to go.
    ///
    /// ```no_run
    /// # use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
    /// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// # let engine = Engine::new(model, &EngineOptions::default())?;
    /// let answer = engine.generate(Request::from_ids([1]).max_new_tokens(4).keep_state(true))?;
    /// println!("{} states held", engine.kept_states().held);
    /// # drop(answer);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn kept_states(&self) -> KeptStats {
        self.shared.client.counters.read()
    }

    /// How full the pools are, between two steps: waits for the one that runs. `None` when the engine has stopped, and
    /// for a draft source or an observer, which are asked during a step.
    ///
    /// ```no_run
    /// # use pawl::{Engine, EngineOptions, LoadOptions, Model};
    /// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// # let engine = Engine::new(model, &EngineOptions::default())?;
    /// if let Some(usage) = engine.pool_usage() {
    ///     println!("{} of {} cache blocks are free", usage.free_blocks, usage.blocks);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn pool_usage(&self) -> Option<PoolUsage> {
        self.shared.client.pool_usage()
    }

    /// Reads a state that [`Kept::save`] wrote, in this process or another, so that a request can continue from it. Room
    /// is not made for it: drop other kept states if there is none.
    ///
    /// ```no_run
    /// # use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
    /// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// # let engine = Engine::new(model, &EngineOptions::default())?;
    /// let kept = engine.restore("prefix.state")?;
    /// let prompt = [kept.tokens(), &[7, 8]].concat();
    /// let answer = engine.generate(Request::from_ids(prompt).continue_from(kept))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Files that cannot be read, are damaged or of another kind, version or model; lack of room.
    pub fn restore(&self, path: impl AsRef<Path>) -> Result<Kept, StateFileError> {
        let client = &self.shared.client;
        let (tokens, image) = saved::read(path.as_ref(), &client.layout)?;
        let kept = client.ask(|reply| CopyCommand::Restore {
            tokens: tokens.into(),
            image: Box::new(image),
            client: Arc::clone(client),
            reply,
        });
        Ok(kept??)
    }

    /// The model's tokenizer, where its folder has one.
    ///
    /// ```no_run
    /// # use pawl::{Engine, EngineOptions, LoadOptions, Model};
    /// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// # let engine = Engine::new(model, &EngineOptions::default())?;
    /// if let Some(tokenizer) = engine.tokenizer() {
    ///     println!("{:?}", tokenizer.encode("def main():", true)?);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn tokenizer(&self) -> Option<&dyn Tokenizer> {
        self.shared.client.limits.tokenizer.as_deref()
    }

    /// How requests are sampled that do not say: the model's own defaults.
    ///
    /// ```no_run
    /// # use pawl::{Engine, EngineOptions, LoadOptions, Model, Request};
    /// # let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
    /// # let engine = Engine::new(model, &EngineOptions::default())?;
    /// let warmer = engine.default_sampling().clone().temperature(0.9);
    /// engine.generate(Request::from_text("import os").sampling(warmer).max_new_tokens(8))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn default_sampling(&self) -> &SamplingParams {
        &self.shared.client.limits.sampling
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.client.tell(Command::Shutdown);
        let thread = self.thread.get_mut().ok().and_then(Option::take);
        // The last handle may be one that the caller's code has on the engine's own thread.
        let other = |thread: &JoinHandle<()>| thread.thread().id() != std::thread::current().id();
        if let Some(thread) = thread.filter(other) {
            let _ = thread.join();
        }
    }
}

/// Where the costs of steps are kept, if they are: by model and machine.
fn cost_store(model: &Model, options: &EngineOptions) -> Option<(PathBuf, CostKey)> {
    let folder = options.cost_folder.clone()?;
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = model.threads.map_or(cores, NonZeroUsize::get);
    let key = CostKey {
        model: model.fingerprint.to_string(),
        machine: format!("{}, {cores} cores, {threads} threads", processor()),
        software: software(),
    };
    Some((folder, key))
}

/// What else costs hang on: the same model takes another time with another version, and many times as long in a build for
/// debugging.
fn software() -> String {
    let build = if cfg!(debug_assertions) {
        "with debug assertions"
    } else {
        "release"
    };
    let runtime = loaded_version().unwrap_or_default();
    let pawl = env!("CARGO_PKG_VERSION");
    format!("pawl {pawl} {build}, onnxruntime {runtime}")
}

/// The name of the processor, or of its architecture where the system does not tell.
fn processor() -> String {
    let known = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut lines = known.lines().filter_map(|line| line.split_once(':'));
    let name = lines.find(|(key, _)| key.trim() == "model name");
    name.map_or(std::env::consts::ARCH, |(_, name)| name.trim())
        .to_owned()
}
