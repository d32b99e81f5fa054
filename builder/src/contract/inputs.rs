//! Graph inputs of a step: the packed tokens and what says which row they belong to.

use genai_config_schema::{CheckpointForm, StateLayout};

use super::{names, symbols};
use crate::error::BuildError;
use crate::graph::ir::Dtype;
use crate::graph::{GraphBuilder, Value};
use crate::ops::{Capture, RowIndices};
use crate::plan::Plan;

/// The inputs that describe a step.
#[derive(Debug)]
pub(crate) struct StepInputs {
    /// `i64 [num_tokens]`.
    pub(crate) input_ids: Value,
    /// `i64 [num_tokens]`.
    pub(crate) positions: Value,
    /// `i32 [rows + 1]`.
    pub(crate) cumulative_lengths: Value,
    /// `i32 [rows]`.
    pub(crate) past_lengths: Value,
    /// `i32 [rows, max_blocks]`.
    pub(crate) block_table: Value,
    /// `i32 [num_logits]`.
    pub(crate) logits_indices: Value,
    rows: Option<(Value, Value)>,
    capture: Option<CaptureInputs>,
}

#[derive(Debug)]
struct CaptureInputs {
    counts: Value,
    active: Option<Value>,
    form: CheckpointForm,
    count: u64,
}

impl StepInputs {
    /// Declares the inputs that every graph has.
    pub(crate) fn declare(g: &mut GraphBuilder) -> Result<Self, BuildError> {
        let (tokens, rows) = (symbols::TOKENS, symbols::ROWS);
        let boundaries = symbols::ROW_BOUNDARIES;
        Ok(Self {
            input_ids: g.offered_input(names::INPUT_IDS, Dtype::I64, [tokens])?,
            positions: g.offered_input(names::POSITION_IDS, Dtype::I64, [tokens])?,
            cumulative_lengths: g.offered_input(
                names::CUMULATIVE_LENGTHS,
                Dtype::I32,
                [boundaries],
            )?,
            past_lengths: g.offered_input(names::PAST_LENGTHS, Dtype::I32, [rows])?,
            block_table: g.offered_input(
                names::BLOCK_TABLE,
                Dtype::I32,
                [rows, symbols::MAX_BLOCKS],
            )?,
            logits_indices: g.offered_input(
                names::LOGITS_INDICES,
                Dtype::I32,
                [symbols::LOGITS],
            )?,
            rows: None,
            capture: None,
        })
    }

    /// Declares the inputs of a model's fixed state, where it has one.
    pub(crate) fn declare_fixed_state(
        &mut self,
        g: &mut GraphBuilder,
        plan: &Plan<'_>,
    ) -> Result<(), BuildError> {
        if !plan.has_fixed_state() {
            return Ok(());
        }
        let rows = [symbols::ROWS];
        if plan.target.state_layout == StateLayout::Bank {
            let read = g.input(names::READ_ROWS, Dtype::I32, rows)?;
            let write = g.input(names::WRITE_ROWS, Dtype::I32, rows)?;
            self.rows = Some((read, write));
        }
        let Some(checkpoints) = plan.checkpoints else {
            return Ok(());
        };
        let counts = g.input(plan.target.capture_counts, Dtype::I32, rows)?;
        let active = plan
            .capture_active()
            .map(|name| g.input(name, Dtype::I32, [1.into()]))
            .transpose()?;
        self.capture = Some(CaptureInputs {
            counts,
            active,
            form: checkpoints.form,
            count: u64::from(checkpoints.count),
        });
        Ok(())
    }

    /// Rows of the bank, where the target's operators choose them.
    pub(crate) fn rows(&self) -> Option<RowIndices<'_>> {
        let (read, write) = self.rows.as_ref()?;
        Some(RowIndices { read, write })
    }

    /// What is captured, where the model has checkpoints.
    pub(crate) fn capture(&self) -> Option<Capture<'_>> {
        let capture = self.capture.as_ref()?;
        Some(Capture {
            counts: &capture.counts,
            active: capture.active.as_ref(),
            form: capture.form,
            count: capture.count,
        })
    }
}
