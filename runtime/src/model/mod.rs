//! A loaded model: files, sessions, contract, memory plan.

pub(crate) mod graph_io;
mod options;
pub(crate) mod spec;
pub(crate) mod tensor_spec;
#[cfg(test)]
pub(crate) mod test_onnx;

pub use options::{LoadOptions, Provider};
