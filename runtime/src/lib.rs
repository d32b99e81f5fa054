//! Pawl runs hybrid language models on ONNX Runtime.

mod device;
mod error;
mod exec;
mod ids;
mod kernels;
mod kv;
pub mod manual;
mod model;
mod sample;
mod schedule;
mod settings;
mod state;
mod text;
mod txn;

pub use error::{ErrorCode, LoadError, RunError};
pub use exec::LibraryError;
pub use ids::RequestId;
pub use model::{LoadOptions, Provider};
pub use settings::{Setting, SettingError, settings};
