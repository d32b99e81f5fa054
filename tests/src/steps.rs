//! What an engine did, step by step.

use pawl::{CacheTensor, Draw, ObservedStep, RequestId, StateTensor, StepObserver};
use std::sync::{Arc, Mutex, PoisonError};

/// One row of a published step.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RowRecord {
    /// Whose row.
    pub request: RequestId,
    /// Tokens committed before the step.
    pub past: usize,
    /// Tokens run, drafts included.
    pub run: usize,
    /// Drafts among them.
    pub drafts: usize,
    /// Tokens kept.
    pub kept: usize,
    /// Whether it ran a prompt or a part of one.
    pub is_prefill: bool,
    /// Tokens drawn.
    pub drawn: Vec<Draw>,
    /// The fixed state after the step, where recorded.
    pub states: Vec<StateTensor>,
    /// Keys and values after the step, where recorded.
    pub cache: Vec<CacheTensor>,
}

impl RowRecord {
    /// Tokens committed after the step.
    #[must_use]
    pub fn committed(&self) -> usize {
        self.past + self.kept
    }
}

/// Writes down every step of an engine. Clones share the record.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    steps: Arc<Mutex<Vec<Vec<RowRecord>>>>,
    with_state: bool,
}

impl Recorder {
    /// A recorder that copies the state after every step, too.
    #[must_use]
    pub fn with_state() -> Self {
        Self {
            with_state: true,
            ..Self::default()
        }
    }

    /// The steps so far, each with its rows in batch order.
    #[must_use]
    pub fn steps(&self) -> Vec<Vec<RowRecord>> {
        let steps = self.steps.lock();
        steps.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The steps since the last time, which are forgotten.
    #[must_use]
    pub fn take(&self) -> Vec<Vec<RowRecord>> {
        let steps = self.steps.lock();
        std::mem::take(&mut *steps.unwrap_or_else(PoisonError::into_inner))
    }

    /// The rows of one request.
    #[must_use]
    pub fn rows(&self, request: RequestId) -> Vec<RowRecord> {
        let rows = self.steps().into_iter().flatten();
        rows.filter(|row| row.request == request).collect()
    }

    /// How close each drawn token of a request was.
    #[must_use]
    pub fn margins(&self, request: RequestId) -> Vec<f32> {
        let rows = self.rows(request).into_iter();
        rows.flat_map(|row| row.drawn)
            .map(|draw| draw.margin)
            .collect()
    }
}

impl StepObserver for Recorder {
    fn published(&self, step: &ObservedStep<'_>) {
        let record = |row: &pawl::ObservedRow<'_>| RowRecord {
            request: row.request(),
            past: row.past(),
            run: row.run(),
            drafts: row.drafts(),
            kept: row.kept(),
            is_prefill: row.is_prefill(),
            drawn: row.drawn().to_vec(),
            states: match self.with_state {
                true => row.states().expect("host memory"),
                false => Vec::new(),
            },
            cache: match self.with_state {
                true => row.cache().expect("host memory"),
                false => Vec::new(),
            },
        };
        let rows = step.rows().iter().map(record).collect();
        let steps = self.steps.lock();
        steps.unwrap_or_else(PoisonError::into_inner).push(rows);
    }
}
