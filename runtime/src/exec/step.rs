//! What one run of a decoder graph takes and gives.

/// Packed inputs of one step. `rows` is `past.len()`, `num_tokens` is `input_ids.len()`.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepInputs {
    /// `[num_tokens]`.
    pub(crate) input_ids: Vec<i64>,
    /// `[num_tokens]`.
    pub(crate) position_ids: Vec<i64>,
    /// `[rows + 1]`.
    pub(crate) cumulative: Vec<i32>,
    /// `[rows]`: committed length of each row before the step.
    pub(crate) past: Vec<i32>,
    /// `[rows, max_blocks]`, row-major; -1 is unmapped.
    pub(crate) block_table: Vec<i32>,
    /// Columns of `block_table`.
    pub(crate) max_blocks: usize,
    /// `[num_logits]`: packed token indices.
    pub(crate) logits_indices: Vec<i32>,
    /// `[rows]`: bank row read; empty when the model has no fixed state.
    pub(crate) read_rows: Vec<i32>,
    /// `[rows]`: bank row written, -1 for none; empty when the model has no fixed state.
    pub(crate) write_rows: Vec<i32>,
    /// `[rows]`: transitions captured; all zero on an ordinary step.
    pub(crate) capture_counts: Vec<i32>,
    /// `[num_tokens, hidden]`, for a head that takes hidden rows; empty otherwise.
    pub(crate) hidden_states: Vec<f32>,
}

/// Outputs copied or written per step.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepOutputs {
    /// `[num_logits, vocab]`.
    pub(crate) logits: Vec<f32>,
    /// `[num_tokens, hidden]` where asked for; empty otherwise.
    pub(crate) hidden: Vec<f32>,
}

/// Whether the checkpoint outputs are bound in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    /// Not bound: nothing is captured, allocated or computed for them.
    Off,
    /// Bound: at least one row drafts.
    On,
}
