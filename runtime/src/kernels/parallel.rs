//! Spreading independent pieces of work over threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::KernelError;

/// Multiply-adds under which handing work to other threads costs more than it brings. Within a step they are awake
/// unless a model's options forbid it, and a hand-over takes one or two microseconds.
const SERIAL_LIMIT: usize = 1 << 16;

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

#[cfg(test)]
mod tests {
    use super::super::node::guarded;
    use super::super::testing::one_node::{OneNode, environment, floats};
    use super::*;
    use ort::operator::{
        BoxedKernel, ComputeContext, KernelContext, Operator, OperatorDomain, OperatorInput,
        OperatorOutput,
    };
    use ort::value::TensorElementType::Float32;
    use std::sync::atomic::AtomicUsize;

    /// An operator whose kernel fails in the way its name says.
    struct Failing(&'static str);

    impl Operator for Failing {
        type Kernel<'attr> = BoxedKernel<'attr>;

        fn name(&self) -> &str {
            self.0
        }

        fn inputs(&self) -> impl IntoIterator<Item = OperatorInput> {
            [OperatorInput::required(Float32)]
        }

        fn outputs(&self) -> impl IntoIterator<Item = OperatorOutput> {
            [OperatorOutput::required(Float32)]
        }

        fn create_kernel<'attr>(
            &self,
            _: &KernelContext<'attr>,
        ) -> ort::Result<BoxedKernel<'attr>> {
            let on_pool = self.0 == "OnPool";
            Ok(Box::new(move |context: &ComputeContext| {
                guarded(|| {
                    assert!(on_pool, "on the calling thread");
                    context.run(64, SERIAL_LIMIT, &|item| assert!(item != 63, "on the pool"))
                })
            }))
        }
    }

    #[test]
    fn a_panic_in_a_kernel_becomes_an_error() {
        environment().unwrap();
        let feeds = [floats("x", &[1], &[1.0])];
        for (operator, threads) in [("OnPool", 1), ("OnPool", 2), ("OnCaller", 2)] {
            let domain = OperatorDomain::new("pawl")
                .unwrap()
                .add(Failing(operator))
                .unwrap();
            let node = OneNode::new("pawl", operator)
                .giving(&["y"])
                .threads(threads);
            let error = node.run_with(domain, &feeds).unwrap_err().to_string();
            assert!(error.contains("panicked"), "{error}");
        }
    }

    #[test]
    fn every_piece_runs_once() {
        for (items, cost) in [(0, 1), (1, 1), (2, 1), (100, 1), (100, SERIAL_LIMIT)] {
            let runs: Vec<AtomicUsize> = (0..items).map(|_| AtomicUsize::new(0)).collect();
            let once = |item: usize| {
                runs[item].fetch_add(1, Ordering::Relaxed);
            };
            Serial.run(items, cost, &once).unwrap();
            assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1));
        }
    }
}
