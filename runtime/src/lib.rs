//! Pawl runs hybrid language models on ONNX Runtime.

mod device;
mod engine;
mod error;
mod evaluate;
mod exec;
mod ids;
mod kernels;
mod kv;
pub mod manual;
mod model;
mod request;
mod sample;
mod schedule;
mod settings;
mod speculate;
mod state;
mod text;
mod txn;

pub use engine::{
    Completion, Engine, EngineError, EngineOptions, GenerateError, RequestHandle, RequestStats,
};
pub use error::{ErrorCode, LoadError, RunError};
pub use evaluate::{EvaluateOptions, Evaluation, StateTensor};
pub use exec::LibraryError;
pub use ids::RequestId;
pub use model::{
    ContractCode, ContractErrors, ContractMismatch, LoadOptions, MemoryPlan, Model, ModelInfo,
    Opened, PlanEntry, Provider, StateGroupInfo, VerifiedGraph, VerifyOptions, VerifyReport,
    verify,
};
pub use request::{Event, FinishReason, Request, RequestError, SubmitError, Usage};
pub use sample::{SamplingError, SamplingParams};
pub use settings::{Setting, SettingError, settings};
pub use speculate::{
    DraftSource, Drafts, EffectiveSpeculation, Speculation, SpeculationError, SpeculationStats,
};
pub use text::{
    ChatTemplate, HfTokenizer, Message, Piece, TemplateError, Tokenizer, TokenizerError,
};
