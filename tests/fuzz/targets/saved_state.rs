//! See `pawl_fuzz::saved_state`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pawl_fuzz::saved_state(bytes));
