//! Pawl runs hybrid language models (attention plus fixed-state layers) on ONNX Runtime.
//!
//! A [`Model`] is a folder that `build-model` wrote, checked and opened. An [`Engine`] answers [`Request`]s with it, many
//! per step, on a thread of its own. Every step is one transaction: state, cache, sampler and text move together or not
//! at all ([`manual::state`]).
//!
//! ```no_run
//! use pawl::{Engine, EngineOptions, Event, LoadOptions, Model, Request};
//!
//! let model = Model::load("demo/tiny-python", &LoadOptions::default())?;
//! let engine = Engine::new(model, &EngineOptions::default())?;
//! let answer = engine.generate(Request::from_text("def main():").max_new_tokens(64))?;
//! println!("{}", answer.text);
//! for event in engine.submit(Request::from_text("class Stack:").max_new_tokens(64))? {
//!     if let Event::Tokens { text, .. } = event {
//!         print!("{text}");
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | to | use |
//! |---|---|
//! | generate, stream, cancel | [`Engine`], [`RequestHandle`], [`Completion`] |
//! | choose tokens | [`SamplingParams`] |
//! | speculate | [`EngineOptions::speculation`], [`Request::drafts`] |
//! | talk in turns | [`ChatTemplate`], [`Request::from_rendered`] |
//! | go on from an earlier state | [`Request::keep_state`], [`Request::continue_from`], [`Kept`] |
//! | branch, undo, save a state | [`Kept::fork`], [`RequestHandle::fork`], [`Kept::rewind`], [`Kept::save`], [`Engine::restore`] |
//! | see logits and state | [`Model::evaluate`], [`EngineOptions::observe_steps`] |
//! | check an export | [`verify`] |
//! | look at a model without running it, plan its memory | [`inspect`], [`StatePlan`] |
//! | check the ONNX Runtime library | [`check_library`] |
//! | know what is too much | [`manual::limits`] |

mod device;
mod engine;
mod error;
mod evaluate;
mod exec;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod grammar;
mod ids;
mod kernels;
mod kv;
mod limits;
pub mod manual;
mod model;
mod request;
mod sample;
mod saved;
mod schedule;
mod settings;
mod speculate;
mod state;
mod text;
mod txn;

pub use engine::{
    CacheTensor, Canceller, Completion, Draw, Engine, EngineError, EngineOptions, GenerateError,
    Kept, KeptError, KeptStats, ObservedRow, ObservedStep, Observer, PoolUsage, RequestHandle,
    RequestStats, StepObserver, StepTimes,
};
pub use error::{ErrorCode, LoadError, RunError};
pub use evaluate::{EvaluateOptions, Evaluation, StateTensor};
pub use exec::{LibraryError, LibraryInfo, check_library};
pub use grammar::{Grammar, GrammarError, GrammarKind};
pub use ids::RequestId;
pub use model::{
    CachePlan, ContractCode, ContractErrors, ContractMismatch, HeadInfo, Inspection, LimitsInfo,
    LoadOptions, MemoryPlan, Model, ModelInfo, Opened, PlanEntry, Provider, SpeculativeInfo,
    StateBytes, StateGroupInfo, StateGroupPlan, StatePlan, VerifiedGraph, VerifyOptions,
    VerifyReport, inspect, verify,
};
pub use request::{Event, FinishReason, Request, RequestError, Reuse, SubmitError, Usage};
pub use sample::{SamplingError, SamplingParams};
pub use saved::StateFileError;
pub use settings::{Setting, SettingError, settings};
pub use speculate::{
    DraftPolicy, DraftSource, DraftTree, DraftTreeError, EffectiveSpeculation, Fallback, Policy,
    Source, SourceStats, Speculation, SpeculationError, SpeculationStats,
};
pub use text::{
    ChatTemplate, HfTokenizer, Message, Piece, TemplateError, Tokenizer, TokenizerError,
};

/// The README's examples compile.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
