//! From a folder to open sessions.

use super::commit::commit_graphs;
use super::contract::{GraphContract, GraphFile};
use super::fingerprint::Fingerprint;
use super::info::ModelInfo;
use super::options::{LoadOptions, Provider};
use super::plan::{Limits, MemoryPlan};
use super::source::{CONFIG_FILE, Source};
use super::tensor_spec::TensorSpec;
use crate::device::{Device, HostDevice};
use crate::error::LoadError;
use crate::exec::{
    CommitGraphs, Decoder, Loaded, Session, SessionSettings, SharedWeights, Version, Wanted,
    WeightsError, load,
};
use crate::limits::THREADS;
use crate::settings;
use genai_config_schema::{
    GenaiConfig, GraphOptimizationLevel, MAX_TOLD, SessionOptions, shortened,
};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of weights under which a graph runs on one thread, as the drafting heads of small models do: waking others for
/// each operator costs more than they save.
const SMALL_GRAPH: u64 = 8 << 20;

/// A loaded model: its files agree with each other, its graphs are open, and its memory is planned. State is
/// allocated by the engine that takes it.
///
/// ```no_run
/// use pawl::{LoadOptions, Model, Provider};
///
/// let model = Model::load("demo/tiny-python", &LoadOptions::new().provider(Provider::Cpu))?;
/// assert_eq!(model.info().provider, Provider::Cpu);
/// # Ok::<(), pawl::LoadError>(())
/// ```
pub struct Model {
    pub(crate) folder: PathBuf,
    pub(crate) config: GenaiConfig,
    pub(crate) decoder: Decoder,
    /// The drafting head, where the model has one that is enabled.
    pub(crate) head: Option<Decoder>,
    /// What commits kept prefixes where the host cannot; taken by the engine.
    pub(crate) commit: Option<CommitGraphs>,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) limits: Limits,
    /// Of the files it was loaded from.
    pub(crate) fingerprint: Fingerprint,
    /// Threads that one operator may use, where that was chosen.
    pub(crate) threads: Option<NonZeroUsize>,
    plan: MemoryPlan,
    info: ModelInfo,
}

impl Model {
    /// Loads the model in `folder`.
    ///
    /// The configuration is read, the graphs are checked against it, and memory is planned; only then is anything
    /// opened or allocated.
    ///
    /// # Errors
    /// A missing or damaged file, a graph that does not fit the configuration (all mismatches at once), a model that
    /// needs more memory than is available or than the limit, an ONNX Runtime that is missing or too old, a provider that cannot be
    /// had. Nothing falls back to something else.
    ///
    /// ```no_run
    /// use pawl::{LoadOptions, Model};
    ///
    /// let model = Model::load("models/tiny-python", &LoadOptions::new().threads(2))?;
    /// println!("{}\n{}", model.info(), model.memory_plan());
    /// # Ok::<(), pawl::LoadError>(())
    /// ```
    pub fn load(folder: impl AsRef<Path>, options: &LoadOptions) -> Result<Self, LoadError> {
        let source = Source::read(folder.as_ref())?;
        let provider = provider(&source, options)?;
        let (limits, plan) = MemoryPlan::settle(
            &source.config,
            &source.contract,
            options,
            &source.graph_sizes,
        )?;
        if source.contract.decoder.host {
            plan.require_fit()?;
        }
        tracing::info!(folder = %source.folder.display(), "memory plan\n{plan}");
        let loaded = runtime(provider, options)?;
        let (decoder, head) = open(loaded, &source, provider, options)?;
        let device = device(provider, &decoder, loaded)?;
        let commit = commit_graphs(loaded, &source, provider, &*device)?;
        refuse_distant(&source, &*device)?;
        let info = ModelInfo::new(&source, provider, &limits);
        let fingerprint = Fingerprint::of(&source)?;
        let session_options = &source.config.model.decoder.session_options;
        let threads = settled_threads(session_options, options.threads)?;
        Ok(Self {
            folder: source.folder,
            config: source.config,
            device,
            decoder,
            head,
            commit,
            limits,
            fingerprint,
            threads,
            plan,
            info,
        })
    }

    /// What the model is.
    ///
    /// ```no_run
    /// let model = pawl::Model::load("demo/tiny-python", &pawl::LoadOptions::new())?;
    /// println!("context of {} tokens", model.info().context_length);
    /// # Ok::<(), pawl::LoadError>(())
    /// ```
    #[must_use]
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// What memory the model takes.
    ///
    /// ```no_run
    /// let model = pawl::Model::load("demo/tiny-python", &pawl::LoadOptions::new())?;
    /// println!("{}", model.memory_plan());
    /// # Ok::<(), pawl::LoadError>(())
    /// ```
    #[must_use]
    pub fn memory_plan(&self) -> &MemoryPlan {
        &self.plan
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("folder", &self.folder)
            .field("info", &self.info)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// The provider that is asked for, if it can run this model.
pub(super) fn provider(source: &Source, options: &LoadOptions) -> Result<Provider, LoadError> {
    let provider = match options.provider {
        Some(provider) => provider,
        None => configured_provider(source)?,
    };
    let refuse = |reason: &str| {
        Err(LoadError::Provider {
            provider: provider.to_string(),
            reason: reason.to_owned(),
        })
    };
    match provider {
        Provider::Cuda { .. } if cfg!(not(feature = "cuda")) => {
            refuse("this build of Pawl has no CUDA support; build it with the feature `cuda`")
        }
        Provider::Cuda { .. } if source.contract.decoder.host => {
            refuse("the model is built for the CPU; build it with `--target cuda`")
        }
        Provider::Cpu if !source.contract.decoder.host => {
            refuse("the model is built for CUDA; build it with `--target cpu`")
        }
        Provider::Cpu | Provider::Cuda { .. } => Ok(provider),
    }
}

pub(super) fn configured_provider(source: &Source) -> Result<Provider, LoadError> {
    let Some(wanted) = source
        .config
        .model
        .decoder
        .session_options
        .provider_options
        .first()
    else {
        return Ok(Provider::Cpu);
    };
    match wanted.name.to_ascii_lowercase().as_str() {
        "cpu" => Ok(Provider::Cpu),
        "cuda" => {
            let device = wanted.options.get("device_id").map_or("0", String::as_str);
            let device_id = device.parse().map_err(|_| LoadError::Option {
                name: "model.decoder.session_options.provider_options.cuda.device_id",
                value: device.to_owned(),
                expected: "a whole number from 0".to_owned(),
            })?;
            Ok(Provider::Cuda { device_id })
        }
        other => Err(LoadError::Provider {
            provider: other.to_owned(),
            reason: format!("`{CONFIG_FILE}` asks for it, and this runtime knows cpu and cuda"),
        }),
    }
}

fn runtime(provider: Provider, options: &LoadOptions) -> Result<&'static Loaded, LoadError> {
    let version = match provider {
        Provider::Cpu => Version::CPU,
        Provider::Cuda { .. } => Version::CUDA,
    };
    let wanted = Wanted {
        library: options.library.as_deref(),
        version,
        provider: match provider {
            Provider::Cpu => "the CPU provider",
            Provider::Cuda { .. } => "the CUDA provider",
        },
    };
    Ok(load(wanted)?)
}

pub(super) fn open(
    loaded: &Loaded,
    source: &Source,
    provider: Provider,
    options: &LoadOptions,
) -> Result<(Decoder, Option<Decoder>), LoadError> {
    let weights = match source.contract.shared.as_slice() {
        [] => None,
        shared => Some(Arc::new(SharedWeights::map(shared.to_vec())?)),
    };
    let opening = Opening {
        loaded,
        source,
        provider,
        options,
        weights: weights.as_ref(),
    };
    let model = &source.config.model;
    let decoder = opening.graph(
        &source.decoder,
        &model.decoder.session_options,
        &source.contract.decoder,
    )?;
    let head = match (&model.mtp, &source.head, &source.contract.head) {
        (Some(mtp), Some(graph), Some(contract)) => {
            Some(opening.graph(graph, &mtp.session_options, contract)?)
        }
        _ => None,
    };
    Ok((decoder, head))
}

/// What every session of a model is opened with.
struct Opening<'a> {
    loaded: &'a Loaded,
    source: &'a Source,
    provider: Provider,
    options: &'a LoadOptions,
    weights: Option<&'a Arc<SharedWeights>>,
}

impl Opening<'_> {
    fn graph(
        &self,
        graph: &GraphFile,
        session_options: &SessionOptions,
        contract: &GraphContract,
    ) -> Result<Decoder, LoadError> {
        let name = graph.name.as_str();
        let path = self.source.folder.join(name);
        let mut settings =
            session_settings(&path, self.provider, session_options, self.options.threads)?;
        if graph.io.weight_bytes() < SMALL_GRAPH {
            settings.threads = Some(NonZeroUsize::MIN);
        }
        let weights = self.weights.map(|weights| (weights, name));
        let session = Session::open(self.loaded, &path, settings, weights)
            .map_err(|error| session_error(&path, self.provider, error.message()))?;
        require_declared(&session, contract)?;
        Decoder::new(session, contract.signature.clone(), contract.state.clone()).map_err(|error| {
            LoadError::Graph {
                path,
                reason: error.to_string(),
            }
        })
    }
}

/// Settings of a session: an option wins over the environment, and that over the model's own settings.
pub(super) fn session_settings(
    path: &Path,
    provider: Provider,
    file: &SessionOptions,
    threads: Option<NonZeroUsize>,
) -> Result<SessionSettings, LoadError> {
    if file.custom_ops_library.is_some() {
        return Err(LoadError::Unsupported {
            path: path.to_path_buf(),
            reason: "session_options.custom_ops_library: libraries of a model folder are not run"
                .to_owned(),
        });
    }
    if let Some(entry) = file.config_entries.keys().find(|entry| names_file(entry)) {
        return Err(LoadError::Unsupported {
            path: path.to_path_buf(),
            reason: format!(
                "session_options.{entry}: it names files or libraries, which could lie outside of the model folder"
            ),
        });
    }
    let threads = settled_threads(file, threads)?;
    let operators = crate::kernels::Operators::new().map_err(|error| LoadError::Graph {
        path: path.to_path_buf(),
        reason: format!("Pawl's operators cannot be registered: {error}"),
    })?;
    Ok(SessionSettings {
        provider,
        threads,
        operators: Some(operators),
        optimize: file
            .graph_optimization_level
            .unwrap_or(GraphOptimizationLevel::All),
        arena: file.enable_cpu_mem_arena.unwrap_or(true),
        entries: file.config_entries.clone().into_iter().collect(),
    })
}

/// Whether a configuration entry of ONNX Runtime has it read, write or load something by a path.
fn names_file(entry: &str) -> bool {
    const WORDS: [&str; 8] = [
        "path",
        "file",
        "filename",
        "filepath",
        "folder",
        "dir",
        "directory",
        "library",
    ];
    let entry = entry.to_ascii_lowercase();
    let mut words = entry.split(|character: char| !character.is_ascii_alphanumeric());
    entry.starts_with("ep.context") || words.any(|word| WORDS.contains(&word))
}

/// Threads of one operator. A session starts all of them at once and waits for each, so a number that the machine
/// cannot have would take the threads of everything else on it before it fails.
fn settled_threads(
    file: &SessionOptions,
    option: Option<NonZeroUsize>,
) -> Result<Option<NonZeroUsize>, LoadError> {
    let configured = file
        .intra_op_num_threads
        .and_then(|threads| usize::try_from(threads).ok());
    let (name, threads) = match (option, settings::threads()?) {
        (Some(threads), _) => ("threads", Some(threads)),
        (None, Some(threads)) => (settings::THREADS.name, Some(threads)),
        (None, None) => (
            "session_options.intra_op_num_threads",
            configured.and_then(NonZeroUsize::new),
        ),
    };
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let most = cores.max(THREADS);
    match threads {
        Some(threads) if threads.get() > most => Err(LoadError::Option {
            name,
            value: threads.to_string(),
            expected: format!("at most {most}"),
        }),
        threads => Ok(threads),
    }
}

/// ONNX Runtime says whether it was the provider that failed only in the text.
pub(super) fn session_error(path: &Path, provider: Provider, message: &str) -> LoadError {
    let reason = shortened(message.trim(), MAX_TOLD).into_owned();
    let of_provider = reason.contains("execution provider") || reason.contains("CUDA");
    if provider != Provider::Cpu && of_provider {
        return LoadError::Provider {
            provider: provider.to_string(),
            reason,
        };
    }
    LoadError::Graph {
        path: path.to_path_buf(),
        reason,
    }
}

/// The session must present what was read from the file: the contract was checked on that.
fn require_declared(session: &Session, contract: &GraphContract) -> Result<(), LoadError> {
    let has = |specs: &[TensorSpec], name: &str| specs.iter().any(|spec| spec.name == name);
    let missing = contract
        .signature
        .inputs
        .iter()
        .find(|(_, name)| !has(session.inputs(), name))
        .map(|(_, name)| name)
        .or_else(|| Some(&contract.signature.logits).filter(|name| !has(session.outputs(), name)));
    match missing {
        None => Ok(()),
        Some(name) => Err(LoadError::Graph {
            path: session.file().to_path_buf(),
            reason: format!("the file declares `{name}`, but ONNX Runtime does not see it"),
        }),
    }
}

/// Operators that meet state by rows need spans of a bank bound for each step, which nothing does yet.
fn refuse_distant(source: &Source, device: &dyn Device) -> Result<(), LoadError> {
    if device.host_visible() {
        return Ok(());
    }
    Err(LoadError::Unsupported {
        path: source.decoder_path(),
        reason: format!(
            "models for {} can be built and verified, but not run yet",
            device.name()
        ),
    })
}

#[cfg(feature = "cuda")]
fn device(
    provider: Provider,
    decoder: &Decoder,
    loaded: &Loaded,
) -> Result<Arc<dyn Device>, LoadError> {
    let Provider::Cuda { device_id } = provider else {
        return Ok(Arc::new(HostDevice));
    };
    let refused = |reason: String| LoadError::Provider {
        provider: provider.to_string(),
        reason,
    };
    let session = decoder
        .session()
        .ok_or_else(|| refused("the graph has no session".to_owned()))?;
    let device = crate::device::CudaDevice::new(session.inner(), &loaded.environment, device_id);
    let device = device.map_err(|error| refused(error.to_string()))?;
    Ok(Arc::new(device))
}

#[cfg(not(feature = "cuda"))]
#[expect(clippy::unnecessary_wraps, reason = "other providers can fail")]
fn device(_: Provider, _: &Decoder, _: &Loaded) -> Result<Arc<dyn Device>, LoadError> {
    Ok(Arc::new(HostDevice))
}

impl From<WeightsError> for LoadError {
    fn from(error: WeightsError) -> Self {
        match error {
            WeightsError::File { file, source } => Self::File { path: file, source },
            WeightsError::Place { ref file, .. } => Self::Weights {
                path: file.clone(),
                reason: error.to_string(),
            },
        }
    }
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
