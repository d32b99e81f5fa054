//! Bounded admission to an engine's queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts unfinished requests.
#[derive(Clone, Debug)]
pub(super) struct Turnstile {
    unfinished: Arc<AtomicUsize>,
    most: usize,
}

/// A place among the unfinished requests, given back when dropped.
#[derive(Debug)]
pub(super) struct Ticket(Arc<AtomicUsize>);

impl Turnstile {
    pub(super) fn new(most: usize) -> Self {
        Self {
            unfinished: Arc::default(),
            most,
        }
    }

    /// `None` when every place is taken.
    pub(super) fn enter(&self) -> Option<Ticket> {
        let next = |count: usize| (count < self.most).then_some(count + 1);
        self.unfinished
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, next)
            .ok()?;
        Some(Ticket(Arc::clone(&self.unfinished)))
    }

    /// Places taken.
    pub(super) fn unfinished(&self) -> usize {
        self.unfinished.load(Ordering::Acquire)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_come_back() {
        let gate = Turnstile::new(2);
        let (first, second) = (gate.enter(), gate.enter());
        assert!(first.is_some() && second.is_some() && gate.enter().is_none());
        drop(first);
        assert_eq!(gate.unfinished(), 1);
        assert!(gate.enter().is_some());
    }
}
