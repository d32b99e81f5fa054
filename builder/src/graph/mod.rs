//! ONNX graphs as plain data, and the builder that fills them without contradictions.

mod builder;
mod check;
mod finish;
pub(crate) mod ir;
mod scope;
mod value;

#[cfg(test)]
mod tests;

pub(crate) use builder::{GraphBuilder, Operator, Place};
pub(crate) use check::Check;
pub(crate) use value::{Output, Value};
