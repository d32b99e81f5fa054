//! ONNX graphs as plain data: what the emitters produce and the encoder writes.

#[allow(dead_code, reason = "used by emission and encoding")]
pub(crate) mod ir;
