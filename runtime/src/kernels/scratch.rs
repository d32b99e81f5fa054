//! Working memory that stays with a thread.

use std::cell::RefCell;

thread_local! {
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Lends `len` floats of unspecified content to `work`.
pub(super) fn with_scratch<R>(len: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    // Taken out while in use: a nested call then gets memory of its own.
    let mut memory = SCRATCH.take();
    if memory.len() < len {
        memory.resize(len, 0.0);
    }
    let result = work(memory.get_mut(..len).unwrap_or_default());
    SCRATCH.replace(memory);
    result
}
