//! How a model is loaded.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Where a model runs.
///
/// ```
/// use pawl::Provider;
///
/// assert_eq!(Provider::Cuda { device_id: 1 }.to_string(), "CUDA device 1");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Provider {
    /// The host, with Pawl's own operators.
    Cpu,
    /// An NVIDIA GPU. Needs a build with the feature `cuda` and an ONNX Runtime with the CUDA provider; where either
    /// is missing, loading fails: nothing ever runs on the host instead.
    Cuda {
        /// Number of the device, from 0.
        device_id: u32,
    },
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("CPU"),
            Self::Cuda { device_id } => write!(f, "CUDA device {device_id}"),
        }
    }
}

/// Choices of the one who loads a model. Everything has a default; an option wins over the environment variable of
/// the same meaning, and that over `genai_config.json`.
///
/// ```
/// use pawl::LoadOptions;
///
/// let options = LoadOptions::new().threads(2).max_batch_size(4);
/// # let _ = options;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadOptions {
    /// Threads that one operator may use. Default: `PAWL_THREADS`, else the model's
    /// `session_options.intra_op_num_threads`, else one per core. At most 256, or one per core where there are more.
    pub threads: Option<NonZeroUsize>,
    /// Where to run. Default: what the model's `session_options.provider_options` name, else the CPU.
    pub provider: Option<Provider>,
    /// Requests that run at once, and slots of fixed state. Default: the model's
    /// `engine.dynamic_batching.max_batch_size`, else 16.
    pub max_batch_size: Option<NonZeroUsize>,
    /// Key/value blocks of each layer. Default: the model's `engine.dynamic_batching.num_blocks`, else enough for
    /// `max_batch_size` sequences of `max_sequence` tokens, but no more than fit 2 GiB and half of the memory that is
    /// available.
    pub kv_blocks: Option<NonZeroUsize>,
    /// Longest sequence in tokens, prompt included. Default, and upper limit: the model's `context_length`.
    pub max_sequence: Option<NonZeroUsize>,
    /// Most bytes that the model may take by its memory plan, files that are mapped included. Default: no limit but what
    /// is available. A key/value cache whose size is not chosen shrinks to what the limit leaves.
    pub memory_limit: Option<u64>,
    /// The ONNX Runtime library. Default: `ORT_DYLIB_PATH`, else beside the executable, else `.ort/1.32.0` in a
    /// folder above the executable.
    pub library: Option<PathBuf>,
}

impl LoadOptions {
    /// Every choice left to its default.
    ///
    /// ```
    /// assert_eq!(pawl::LoadOptions::new().threads, None);
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the threads that one operator may use; 0 is the default.
    ///
    /// ```
    /// use pawl::LoadOptions;
    ///
    /// assert_eq!(LoadOptions::new().threads(2).threads.map(|threads| threads.get()), Some(2));
    /// assert_eq!(LoadOptions::new().threads(0), LoadOptions::new());
    /// ```
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = NonZeroUsize::new(threads);
        self
    }

    /// Sets where to run.
    ///
    /// ```
    /// use pawl::{LoadOptions, Provider};
    ///
    /// assert_eq!(LoadOptions::new().provider(Provider::Cpu).provider, Some(Provider::Cpu));
    /// ```
    #[must_use]
    pub fn provider(mut self, provider: Provider) -> Self {
        self.provider = Some(provider);
        self
    }

    /// Sets how many requests run at once; 0 is the default.
    ///
    /// ```
    /// let options = pawl::LoadOptions::new().max_batch_size(4);
    /// assert_eq!(options.max_batch_size.map(|requests| requests.get()), Some(4));
    /// ```
    #[must_use]
    pub fn max_batch_size(mut self, requests: usize) -> Self {
        self.max_batch_size = NonZeroUsize::new(requests);
        self
    }

    /// Sets the key/value blocks of each layer; 0 is the default.
    ///
    /// ```
    /// let options = pawl::LoadOptions::new().kv_blocks(512);
    /// assert_eq!(options.kv_blocks.map(|blocks| blocks.get()), Some(512));
    /// ```
    #[must_use]
    pub fn kv_blocks(mut self, blocks: usize) -> Self {
        self.kv_blocks = NonZeroUsize::new(blocks);
        self
    }

    /// Sets the longest sequence in tokens; 0 is the default.
    ///
    /// ```
    /// let options = pawl::LoadOptions::new().max_sequence(1024);
    /// assert_eq!(options.max_sequence.map(|tokens| tokens.get()), Some(1024));
    /// ```
    #[must_use]
    pub fn max_sequence(mut self, tokens: usize) -> Self {
        self.max_sequence = NonZeroUsize::new(tokens);
        self
    }

    /// Refuses a model that takes more bytes than this by its memory plan; 0 is the default.
    ///
    /// ```
    /// let options = pawl::LoadOptions::new().memory_limit(4 << 30);
    /// assert_eq!(options.memory_limit, Some(4 << 30));
    /// ```
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = (bytes > 0).then_some(bytes);
        self
    }

    /// Sets the ONNX Runtime library.
    ///
    /// ```
    /// let options = pawl::LoadOptions::new().library("lib/libonnxruntime.so");
    /// assert!(options.library.is_some_and(|path| path.ends_with("libonnxruntime.so")));
    /// ```
    #[must_use]
    pub fn library(mut self, path: impl Into<PathBuf>) -> Self {
        self.library = Some(path.into());
        self
    }
}
