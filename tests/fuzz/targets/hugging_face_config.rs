//! See `pawl_fuzz::hugging_face_config`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pawl_fuzz::hugging_face_config(bytes));
