//! A planted bug. `cargo xtask asan` and `cargo xtask valgrind` run it before anything else and fail unless it is found:
//! a search that finds nothing must be able to find something.

#![allow(unsafe_code)]

use std::hint::black_box;

#[test]
#[ignore = "a planted bug: reads past the end of a buffer"]
fn reads_past_the_end() {
    let row = vec![1.0_f32; black_box(16)];
    let end = row.as_ptr_range().end;
    // SAFETY: none. What is read lies behind the buffer, which is the bug; four bytes behind 64 of the heap are mapped.
    let past = unsafe { black_box(end).read() };
    black_box(past);
}
