//! Drafts of a multi-token-prediction head.
//!
//! Position `i` of the head is made from token `i + 1` and the decoder's hidden row `i`. After every run of the decoder
//! one pass feeds the head the kept tokens with the decoder's own hidden rows: prompts and accepted drafts alike, so
//! what was drafted with the head's guesses of hidden rows never stays. The last row of that pass gives the first
//! draft; further ones are chained from the head's hidden rows, at positions that the step does not keep.

use super::accept::Decided;
use super::error::EngineError;
use super::pack::{self, LogitsOf};
use crate::exec::{Capture, Decoder, StepInputs, StepOutputs};
use crate::sample::Scratch;
use crate::txn::{Reserved, Step, StepRow};

/// Inputs and outputs of the head, reused from step to step.
#[derive(Debug, Default)]
pub(super) struct HeadRun {
    inputs: StepInputs,
    outputs: StepOutputs,
}

/// The head at work in one step.
pub(super) struct HeadDrafter<'a> {
    pub(super) head: &'a mut Decoder,
    pub(super) run: &'a mut HeadRun,
    pub(super) scratch: &'a mut Scratch,
    /// Drafts that a row can carry: one more than these would be made in vain.
    pub(super) most: usize,
}

/// One request whose drafts are being chained.
struct Chain {
    /// Row of the step.
    row: usize,
    /// Drafts to make in all.
    drafts: usize,
    /// The head's hidden row behind the next draft.
    hidden: Vec<f32>,
}

impl HeadDrafter<'_> {
    /// Runs the head over what each row keeps, and leaves each row's drafts in [`Decided::proposal`]. `hidden` is the
    /// decoder's `[num_tokens, width]`.
    ///
    /// # Errors
    /// Failures inside ONNX Runtime.
    pub(super) fn draft(
        &mut self,
        step: &mut Step<'_, Reserved>,
        decided: &mut [Decided],
        rows: &[StepRow],
        hidden: (&[f32], usize),
    ) -> Result<(), EngineError> {
        let most = |(decided, row): (&Decided, &StepRow)| {
            let spare = row.head_tokens.saturating_sub(decided.kept.get());
            // The first draft needs no position beyond the kept ones.
            decided.room.min(spare + 1).min(self.most)
        };
        let drafts: Vec<usize> = decided.iter().zip(rows).map(most).collect();
        self.read(step, decided, &drafts, hidden)?;
        let mut chains = self.first_drafts(decided, &drafts)?;
        for depth in 1.. {
            chains.retain(|chain| chain.drafts > depth);
            if chains.is_empty() {
                break;
            }
            self.chain(step, decided, &mut chains, depth)?;
        }
        Ok(())
    }

    /// The pass over kept tokens; rows that want drafts get the logits of their last.
    fn read(
        &mut self,
        step: &mut Step<'_, Reserved>,
        decided: &[Decided],
        drafts: &[usize],
        (hidden, width): (&[f32], usize),
    ) -> Result<(), EngineError> {
        let inputs = &mut self.run.inputs;
        pack::clear(inputs);
        for (row, drafts) in decided.iter().zip(drafts) {
            let logits = LogitsOf::Last(usize::from(*drafts > 0));
            pack::push_row(inputs, row.past, row.shifted.iter().copied(), logits);
            let from = row.start * width;
            let rows = hidden.get(from..from + row.kept.get() * width);
            inputs
                .hidden_states
                .extend_from_slice(rows.unwrap_or_default());
        }
        let all: Vec<usize> = (0..decided.len()).collect();
        self.pass(step, &all, &vec![0; decided.len()])
    }

    /// The first draft of every row that wants any.
    fn first_drafts(
        &mut self,
        decided: &mut [Decided],
        drafts: &[usize],
    ) -> Result<Vec<Chain>, EngineError> {
        let (vocab, width) = (self.head.vocab(), self.head.hidden_size());
        let mut logits = self.run.outputs.logits.chunks_exact(vocab.max(1));
        let ends = self.run.inputs.cumulative.iter().skip(1);
        let mut chains = Vec::new();
        for (row, ((decided, drafts), end)) in decided.iter_mut().zip(drafts).zip(ends).enumerate()
        {
            if *drafts == 0 {
                continue;
            }
            if !propose(decided, logits.next().unwrap_or_default(), self.scratch) {
                continue;
            }
            let last = usize::try_from(*end).unwrap_or(0).saturating_sub(1) * width;
            let hidden = self.run.outputs.hidden.get(last..last + width);
            let hidden = hidden.unwrap_or_default().to_vec();
            let drafts = *drafts;
            chains.push(Chain {
                row,
                drafts,
                hidden,
            });
        }
        Ok(chains)
    }

    /// One more draft of every chain, at position `kept + depth - 1` of its row.
    fn chain(
        &mut self,
        step: &mut Step<'_, Reserved>,
        decided: &mut [Decided],
        chains: &mut [Chain],
        depth: usize,
    ) -> Result<(), EngineError> {
        let inputs = &mut self.run.inputs;
        pack::clear(inputs);
        let (mut rows, mut written) = (Vec::new(), Vec::new());
        for chain in chains.iter() {
            let Some(row) = decided.get(chain.row) else {
                continue;
            };
            let after = row.kept.get() + depth - 1;
            let last = row.proposal.last().copied();
            pack::push_row(inputs, row.past + after, last, LogitsOf::Last(1));
            inputs.hidden_states.extend_from_slice(&chain.hidden);
            rows.push(chain.row);
            written.push(after);
        }
        self.pass(step, &rows, &written)?;
        let (vocab, width) = (self.head.vocab(), self.head.hidden_size());
        let logits = self.run.outputs.logits.chunks_exact(vocab.max(1));
        let hidden = self.run.outputs.hidden.chunks_exact(width.max(1));
        for ((chain, logits), hidden) in chains.iter_mut().zip(logits).zip(hidden) {
            chain.hidden.copy_from_slice(hidden);
            let row = decided.get_mut(chain.row);
            if !row.is_some_and(|row| propose(row, logits, self.scratch)) {
                chain.drafts = 0;
            }
        }
        Ok(())
    }

    /// Runs the head over some rows of the step, `written` positions after what each has committed.
    fn pass(
        &mut self,
        step: &mut Step<'_, Reserved>,
        rows: &[usize],
        written: &[usize],
    ) -> Result<(), EngineError> {
        let HeadRun { inputs, outputs } = &mut *self.run;
        let binding = step.head_binding(rows).unwrap_or_default();
        inputs.past = binding.past;
        for (past, written) in inputs.past.iter_mut().zip(written) {
            *past = past.saturating_add(i32::try_from(*written).unwrap_or(i32::MAX));
        }
        inputs.block_table = binding.block_table;
        inputs.max_blocks = binding.max_blocks;
        let buffers = step.head_buffers();
        Ok(self
            .head
            .run(inputs, buffers, &mut [], Capture::Off, outputs, true)?)
    }
}

/// Draws a draft as the request would draw the token: with the same noise, so that a head that agrees with the decoder
/// drafts what the decoder will draw. `false` for logits that nothing can be drawn from: the row's drafts end there.
fn propose(row: &mut Decided, logits: &[f32], scratch: &mut Scratch) -> bool {
    let position = row.past + row.kept.get() + 1 + row.proposal.len();
    let position = u64::try_from(position).unwrap_or(u64::MAX);
    let drawn = row.sampler.draw(logits, position, scratch);
    row.proposal
        .extend(drawn.as_ref().ok().map(|drawn| drawn.token));
    drawn.is_ok()
}
