//! See `pawl_fuzz::chat_template`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pawl_fuzz::chat_template(bytes));
