//! See `pawl_fuzz::genai_config`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pawl_fuzz::genai_config(bytes));
