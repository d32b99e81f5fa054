//! See `pawl_fuzz::safetensors_header`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pawl_fuzz::safetensors_header(bytes));
