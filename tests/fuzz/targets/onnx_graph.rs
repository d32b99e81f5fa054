//! See `pawl_fuzz::onnx_graph`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pawl_fuzz::onnx_graph(bytes));
