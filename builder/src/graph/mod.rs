//! ONNX graphs as plain data: what the emitters produce and the encoder writes.

pub(crate) mod ir;
