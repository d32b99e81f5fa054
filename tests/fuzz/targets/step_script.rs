//! See `pawl_fuzz::step_script`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pawl_fuzz::step_script(bytes));
