//! Pawl runs hybrid language models on ONNX Runtime.

mod device;
mod exec;
mod ids;
mod kernels;
mod kv;
mod model;
mod sample;
mod state;
mod text;
mod txn;

pub use ids::RequestId;
