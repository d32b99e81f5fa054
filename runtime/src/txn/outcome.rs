//! What one published step did.

use crate::ids::RequestId;

/// One row of a published step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowOutcome {
    /// Whose row.
    pub(crate) request: RequestId,
    /// Committed tokens before the step.
    pub(crate) before: usize,
    /// Committed tokens now.
    pub(crate) committed: usize,
    /// Tokens run that were not kept.
    pub(crate) rejected: usize,
}

/// A published step, in batch order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepOutcome {
    /// One entry per row.
    pub(crate) rows: Vec<RowOutcome>,
}
