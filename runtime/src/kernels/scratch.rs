//! Working memory that stays with a thread.

use std::cell::RefCell;

thread_local! {
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Working memory of this thread, given back when dropped.
///
/// A guard, not a closure: a closure is a function of its own, compiled without the vector instructions of the kernel
/// body around it.
#[derive(Debug)]
pub(super) struct Scratch {
    memory: Vec<f32>,
    len: usize,
}

impl Scratch {
    /// Lends `len` floats of unspecified content.
    pub(super) fn lend(len: usize) -> Self {
        // Taken out while in use: a nested call then gets memory of its own.
        let mut memory = SCRATCH.take();
        if memory.len() < len {
            memory.resize(len, 0.0);
        }
        Self { memory, len }
    }

    /// The floats.
    #[inline(always)]
    pub(super) fn floats(&mut self) -> &mut [f32] {
        self.memory.get_mut(..self.len).unwrap_or_default()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        SCRATCH.replace(std::mem::take(&mut self.memory));
    }
}
