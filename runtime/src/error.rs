//! Error codes, shared by every interface, and the errors of loading and running a model.

use crate::exec::LibraryError;
use crate::model::ContractErrors;
use crate::settings::SettingError;
use genai_config_schema::{ConfigCode, ConfigErrors};
use std::path::PathBuf;

/// What kind of error it is, in a form that programs and other languages can use. Numbers are stable: they are never
/// reused, and new ones may be added.
///
/// ```
/// use pawl::{ErrorCode, LoadOptions, Model};
///
/// let error = Model::load("no/such/folder", &LoadOptions::new()).unwrap_err();
/// assert_eq!(error.code(), ErrorCode::FileUnreadable);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u32)]
pub enum ErrorCode {
    /// ONNX Runtime was not found, or the path given for it is not a file.
    LibraryNotFound = 100,
    /// The library found is not a usable ONNX Runtime.
    LibraryUnusable = 101,
    /// ONNX Runtime is older than needed.
    LibraryTooOld = 102,
    /// The process has already loaded another ONNX Runtime.
    LibraryConflict = 103,
    /// The requested provider cannot be had.
    ProviderUnavailable = 110,
    /// An option or environment variable has a value that it cannot have.
    OptionInvalid = 120,
    /// A file of the model is missing or cannot be read.
    FileUnreadable = 200,
    /// `genai_config.json` is not valid.
    ConfigInvalid = 201,
    /// A graph file is not a usable ONNX model.
    GraphInvalid = 202,
    /// A graph does not declare what `genai_config.json` says.
    ContractMismatch = 203,
    /// Weights are not where or what they are declared to be.
    WeightsInvalid = 204,
    /// The model is valid, but this runtime cannot run it.
    Unsupported = 205,
    /// The model needs more memory than there is.
    OutOfMemory = 300,
    /// A step was given inputs that do not belong together.
    StepInvalid = 400,
    /// ONNX Runtime failed while running a step.
    StepFailed = 401,
    /// A step was undone: a participant refused it.
    StepDiscarded = 402,
    /// An audit found state that contradicts itself.
    StateContradictory = 403,
    /// A request that cannot run on this model.
    RequestInvalid = 500,
    /// Too many requests are waiting.
    QueueFull = 501,
    /// The engine has stopped.
    EngineStopped = 502,
    /// A kept state is not there any more.
    StateGone = 600,
    /// Requests and kept states leave no room for another state.
    NoRoom = 601,
    /// A file with a state is damaged.
    StateDamaged = 602,
    /// A file holds no state, or one of another version or model.
    StateForeign = 603,
}

impl ErrorCode {
    /// The stable number.
    ///
    /// ```
    /// assert_eq!(pawl::ErrorCode::QueueFull.number(), 501);
    /// ```
    #[must_use]
    pub fn number(self) -> u32 {
        self as u32
    }
}

/// Why a model could not be loaded. Nothing is left allocated or open.
///
/// ```
/// let error = pawl::inspect("no/such/folder", &pawl::LoadOptions::new()).unwrap_err();
/// assert!(matches!(error, pawl::LoadError::Config(_)));
/// assert!(error.to_string().contains("genai_config.json"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// ONNX Runtime could not be loaded.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// An environment variable cannot be understood.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// An option has a value that the model cannot serve.
    #[error("option {name} is {value}, expected {expected}")]
    Option {
        /// Name of the option.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        expected: String,
    },
    /// The requested provider cannot be had. Nothing falls back to another one.
    #[error("{provider} cannot be used: {reason}")]
    Provider {
        /// The provider.
        provider: String,
        /// What ONNX Runtime or this build says.
        reason: String,
    },
    /// A file of the model is missing or cannot be read.
    #[error("`{path}`: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// `genai_config.json` is missing or not valid.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The folder holds a checkpoint as it was published, not a model that `build-model` wrote.
    #[error(
        "`{folder}`: holds a Hugging Face checkpoint (config.json and safetensors) and no genai_config.json; it has to be \
         exported first: build-model --input {folder} --output MODEL, where MODEL is the folder to load then"
    )]
    NotExported {
        /// The folder.
        folder: PathBuf,
    },
    /// The graphs do not declare what `genai_config.json` says.
    #[error(transparent)]
    Contract(#[from] ContractErrors),
    /// A graph file is not a usable ONNX model.
    #[error("`{path}`: {reason}")]
    Graph {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Weights are not where or what they are declared to be.
    #[error("`{path}`: {reason}")]
    Weights {
        /// The graph or data file.
        path: PathBuf,
        /// Which weight, and what is wrong with it.
        reason: String,
    },
    /// The tokenizer is there and cannot be used.
    #[error("{reason}")]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Drafts were asked for that the model cannot make or undo.
    #[error(transparent)]
    Speculation(#[from] crate::speculate::SpeculationError),
    /// The model is valid, but this runtime cannot run it.
    #[error("`{path}`: {reason}")]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What cannot be done.
        reason: String,
    },
    /// The model needs more memory than there is.
    #[error("{reason}")]
    Memory {
        /// What was needed, and what there is.
        reason: String,
    },
}

impl LoadError {
    /// The kind of error.
    ///
    /// ```
    /// use pawl::{ErrorCode, LoadError};
    ///
    /// let error = LoadError::Memory { reason: "12 GiB are needed, there are 8".to_owned() };
    /// assert_eq!(error.code(), ErrorCode::OutOfMemory);
    /// ```
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Library(error) => error.code(),
            Self::Setting(_) | Self::Option { .. } | Self::Speculation(_) => {
                ErrorCode::OptionInvalid
            }
            Self::Provider { .. } => ErrorCode::ProviderUnavailable,
            Self::File { .. } | Self::Tokenizer { .. } | Self::NotExported { .. } => {
                ErrorCode::FileUnreadable
            }
            Self::Config(errors) => match errors.codes().next() {
                Some(ConfigCode::Unreadable) => ErrorCode::FileUnreadable,
                _ => ErrorCode::ConfigInvalid,
            },
            Self::Contract(_) => ErrorCode::ContractMismatch,
            Self::Graph { .. } => ErrorCode::GraphInvalid,
            Self::Weights { .. } => ErrorCode::WeightsInvalid,
            Self::Unsupported { .. } => ErrorCode::Unsupported,
            Self::Memory { .. } => ErrorCode::OutOfMemory,
        }
    }
}

impl LibraryError {
    /// The kind of error.
    ///
    /// ```
    /// use pawl::{ErrorCode, LibraryError};
    ///
    /// let error = LibraryError::NotFound { searched: Vec::new() };
    /// assert_eq!(error.code(), ErrorCode::LibraryNotFound);
    /// ```
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::NotAFile { .. } | Self::NotFound { .. } => ErrorCode::LibraryNotFound,
            Self::Unloadable { .. } | Self::NotOnnxRuntime { .. } | Self::Start { .. } => {
                ErrorCode::LibraryUnusable
            }
            Self::TooOld { .. } => ErrorCode::LibraryTooOld,
            Self::AlreadyLoaded { .. } => ErrorCode::LibraryConflict,
        }
    }
}

/// Why one run of a graph failed. State that the run was to write is unspecified afterwards.
///
/// ```
/// let error = pawl::RunError::Failed { graph: "mtp.onnx".to_owned(), reason: "no memory".to_owned() };
/// assert_eq!(error.to_string(), "mtp.onnx: no memory");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The inputs do not belong together, or are not what the graph takes.
    #[error("{graph}: {reason}")]
    Step {
        /// The graph, by file name.
        graph: String,
        /// Which input, what was given and what was expected.
        reason: String,
    },
    /// ONNX Runtime failed.
    #[error("{graph}: {reason}")]
    Failed {
        /// The graph, by file name.
        graph: String,
        /// What ONNX Runtime said.
        reason: String,
    },
}

impl RunError {
    /// The kind of error.
    ///
    /// ```
    /// use pawl::{ErrorCode, RunError};
    ///
    /// let error = RunError::Failed { graph: "mtp.onnx".to_owned(), reason: "no memory".to_owned() };
    /// assert_eq!(error.code(), ErrorCode::StepFailed);
    /// ```
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Step { .. } => ErrorCode::StepInvalid,
            Self::Failed { .. } => ErrorCode::StepFailed,
        }
    }
}
