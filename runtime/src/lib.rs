//! Pawl runs hybrid language models on ONNX Runtime.

mod device;
mod exec;
mod ids;
mod kernels;
mod kv;
mod model;
mod sample;
mod settings;
mod state;
mod text;
mod txn;

pub use exec::LibraryError;
pub use ids::RequestId;
pub use settings::{Setting, SettingError, settings};
