//! Spreading independent pieces of work over threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::KernelError;

/// Multiply-adds under which waking other threads costs more than it brings.
const SERIAL_LIMIT: usize = 1 << 18;

/// Somebody who runs pieces of work, in any order and on any thread.
pub(crate) trait Parallel {
    /// Runs `work(0) .. work(items - 1)` and waits for all of them.
    ///
    /// # Errors
    /// [`KernelError::Panicked`] when a piece panicked; the others ran or not.
    fn spread(&self, items: usize, work: &(dyn Fn(usize) + Sync)) -> Result<(), KernelError>;

    /// Like [`Parallel::spread`], but stays on this thread when `items * cost` (in multiply-adds)
    /// is too little to share.
    fn run(
        &self,
        items: usize,
        cost: usize,
        work: &(dyn Fn(usize) + Sync),
    ) -> Result<(), KernelError> {
        if items > 1 && items.saturating_mul(cost) > SERIAL_LIMIT {
            self.spread(items, work)
        } else {
            Serial.spread(items, work)
        }
    }
}

/// Runs everything on the calling thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Serial;

impl Parallel for Serial {
    fn spread(&self, items: usize, work: &(dyn Fn(usize) + Sync)) -> Result<(), KernelError> {
        catch_unwind(AssertUnwindSafe(|| (0..items).for_each(work)))
            .map_err(|_| KernelError::Panicked)
    }
}

/// Runs on ONNX Runtime's pool of intra-op threads.
impl Parallel for ort::operator::ComputeContext {
    fn spread(&self, items: usize, work: &(dyn Fn(usize) + Sync)) -> Result<(), KernelError> {
        let panicked = AtomicBool::new(false);
        // A panic that reaches ONNX Runtime's frames ends the process.
        self.par_for(items, 0, |item| {
            if catch_unwind(AssertUnwindSafe(|| work(item))).is_err() {
                panicked.store(true, Ordering::Relaxed);
            }
        })?;
        if panicked.into_inner() {
            Err(KernelError::Panicked)
        } else {
            Ok(())
        }
    }
}
