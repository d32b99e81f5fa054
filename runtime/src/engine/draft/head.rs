//! Drafts of a multi-token-prediction head.
//!
//! Position `i` of the head is made from token `i + 1` and the decoder's hidden row `i`. After a run of the decoder one
//! pass feeds the head the kept tokens with the decoder's own hidden rows: prompts and accepted drafts alike, so what was
//! drafted with the head's guesses of hidden rows never stays. The last row of that pass gives the first draft; further
//! ones are chained from the head's hidden rows, at positions that the step does not keep.
//!
//! A step after which nothing is drafted for a request does not run the head for it: the hidden rows wait, and are read
//! in one pass with those of the step that drafts again. So a request that is not worth drafting for costs no pass.

use super::branching::Tree;
use super::{Cut, Drafter, Drafting};
use crate::engine::accept::Decided;
use crate::engine::active::Active;
use crate::engine::error::EngineError;
use crate::engine::pack::{self, LogitsOf};
use crate::exec::{Capture, Decoder, StepInputs, StepOutputs};
use crate::ids::RequestId;
use crate::sample::Scratch;
use crate::speculate::Source;
use crate::txn::{Reserved, Step};
use std::collections::HashMap;

/// Hidden rows of one request that may wait. Longer waits are read without drafting, so that memory stays bounded.
const MOST_UNREAD: usize = 256;

/// The head, and the hidden rows that it has not read.
#[derive(Debug)]
pub(super) struct HeadDrafter {
    pub(super) head: Decoder,
    pub(super) inputs: StepInputs,
    pub(super) outputs: StepOutputs,
    /// By request or kept state, `[n, width]`: rows of its last committed tokens.
    unread: HashMap<RequestId, Vec<f32>>,
    /// What [`Drafter::publish`] makes of that.
    staged: Vec<(RequestId, Vec<f32>)>,
}

/// One request whose hidden rows are read in this step.
pub(super) struct Reading {
    /// Row of the step.
    pub(super) row: usize,
    /// Rows read: those that waited, then those of the kept tokens.
    pub(super) count: usize,
    /// Drafts to make along one path.
    pub(super) drafts: usize,
}

/// One request whose drafts are being chained.
struct Chain {
    /// Row of the step.
    row: usize,
    /// Drafts to make in all.
    drafts: usize,
    /// Positions read before the first chained one.
    read: usize,
    /// The head's hidden row behind the next draft.
    hidden: Vec<f32>,
}

impl HeadDrafter {
    pub(super) fn new(head: Decoder) -> Self {
        Self {
            head,
            inputs: StepInputs::default(),
            outputs: StepOutputs::default(),
            unread: HashMap::new(),
            staged: Vec::new(),
        }
    }

    /// Elements of a hidden row.
    pub(super) fn width(&self) -> usize {
        self.head.hidden_size().max(1)
    }

    fn waiting(&self, of: RequestId) -> usize {
        self.unread(of).len() / self.width()
    }

    /// Decides which rows are read in this step, and stages what waits for a later one.
    fn schedule(&mut self, drafting: &mut Drafting<'_, '_, '_>) -> Vec<Reading> {
        let width = self.width();
        let mut readings = Vec::new();
        for (index, row) in drafting.rows.iter_mut().enumerate() {
            let waiting = self.waiting(row.request);
            let count = waiting + row.kept.get();
            // The first draft needs no position beyond the ones read.
            let spare = row.head_room.saturating_sub(count);
            let mut drafts = row.wanted(Source::Head).min(spare + 1);
            let kept = kept_rows(drafting.hidden, row, width);
            if drafts > 0 && !are_numbers(self.unread(row.request).iter().chain(kept)) {
                // Nothing follows from them, which says nothing of the head: it is not asked.
                (drafts, row.choice.arm) = (0, None);
            }
            let read = drafts > 0 || row.is_prefill || count > MOST_UNREAD;
            row.head_kept = if read { count } else { 0 };
            if read {
                self.staged.push((row.request, Vec::new()));
                readings.push(Reading {
                    row: index,
                    count,
                    drafts,
                });
            } else {
                let mut rows = self.unread(row.request).to_vec();
                rows.extend_from_slice(kept);
                self.staged.push((row.request, rows));
            }
        }
        readings
    }

    /// The pass over hidden rows of the decoder; rows that want drafts get the logits of their last.
    fn read(
        &mut self,
        drafting: &mut Drafting<'_, '_, '_>,
        readings: &[Reading],
    ) -> Result<(), EngineError> {
        let width = self.width();
        pack::clear(&mut self.inputs);
        for reading in readings {
            let Some(row) = drafting.rows.get(reading.row) else {
                continue;
            };
            let waiting = self.unread.get(&row.request);
            let waiting = waiting.map_or(&[][..], Vec::as_slice);
            let first = row.past - (waiting.len() / width).min(row.past);
            let active = drafting.requests.iter().find(|a| a.id == row.request);
            let tokens = followers(active, row, first, reading.count);
            let logits = LogitsOf::Last(usize::from(reading.drafts > 0));
            pack::push_row(&mut self.inputs, first, tokens, logits);
            let hidden = &mut self.inputs.hidden_states;
            hidden.extend_from_slice(waiting);
            hidden.extend_from_slice(kept_rows(drafting.hidden, row, width));
        }
        let rows: Vec<usize> = readings.iter().map(|reading| reading.row).collect();
        *drafting.passes += 1;
        let own: Vec<_> = rows.iter().map(|row| (*row, None)).collect();
        self.run_in(drafting.step, &own, &vec![0; rows.len()])
    }

    /// What every row that wants drafts starts from: the first draft of a chain, or the first guesses of a tree.
    fn starts(
        &mut self,
        drafting: &mut Drafting<'_, '_, '_>,
        readings: &[Reading],
    ) -> Result<(Vec<Chain>, Vec<Tree>), EngineError> {
        let (vocab, width) = (self.head.vocab(), self.width());
        let mut logits = self.outputs.logits.chunks_exact(vocab.max(1));
        let ends = self.inputs.cumulative.iter().skip(1);
        let (mut chains, mut trees) = (Vec::new(), Vec::new());
        for (reading, end) in readings.iter().zip(ends) {
            if reading.drafts == 0 {
                continue;
            }
            let logits = logits.next().unwrap_or_default();
            let last = usize::try_from(*end).unwrap_or(0).saturating_sub(1) * width;
            let hidden = self.outputs.hidden.get(last..last + width);
            let row = drafting.rows.get(reading.row);
            let branches = row.is_some_and(|row| row.choice.width > 1);
            if branches && drafting.step.head_branches(reading.row) > 0 {
                let start = (logits, hidden.unwrap_or_default());
                trees.extend(self.plant(drafting, reading, start)?);
                continue;
            }
            let row = drafting.rows.get_mut(reading.row);
            if !row.is_some_and(|row| propose(row, logits, drafting.scratch)) {
                continue;
            }
            chains.push(Chain {
                row: reading.row,
                drafts: reading.drafts,
                read: reading.count,
                hidden: hidden.unwrap_or_default().to_vec(),
            });
        }
        Ok((chains, trees))
    }

    /// One more draft of every chain, at position `kept + depth - 1` of its row.
    fn chain(
        &mut self,
        drafting: &mut Drafting<'_, '_, '_>,
        chains: &mut [Chain],
        depth: usize,
    ) -> Result<(), EngineError> {
        pack::clear(&mut self.inputs);
        let (mut rows, mut written) = (Vec::new(), Vec::new());
        for chain in chains.iter() {
            let Some(row) = drafting.rows.get(chain.row) else {
                continue;
            };
            let position = row.past + row.kept.get() + depth - 1;
            let last = row
                .proposal
                .tree
                .nodes()
                .next_back()
                .map(|(_, token)| token);
            pack::push_row(&mut self.inputs, position, last, LogitsOf::Last(1));
            self.inputs.hidden_states.extend_from_slice(&chain.hidden);
            rows.push((chain.row, None));
            written.push(chain.read + depth - 1);
        }
        *drafting.passes += 1;
        self.run_in(drafting.step, &rows, &written)?;
        let (vocab, width) = (self.head.vocab(), self.width());
        let logits = self.outputs.logits.chunks_exact(vocab.max(1));
        let hidden = self.outputs.hidden.chunks_exact(width);
        for ((chain, logits), hidden) in chains.iter_mut().zip(logits).zip(hidden) {
            chain.hidden.copy_from_slice(hidden);
            let row = drafting.rows.get_mut(chain.row);
            if !row.is_some_and(|row| propose(row, logits, drafting.scratch)) {
                chain.drafts = 0;
            }
        }
        Ok(())
    }

    /// Runs the head in the tables of some rows of the step, or of branches of them, `written` positions after what it has
    /// committed of each.
    pub(super) fn run_in(
        &mut self,
        step: &mut Step<'_, Reserved>,
        rows: &[(usize, Option<usize>)],
        written: &[usize],
    ) -> Result<(), EngineError> {
        let Self {
            head,
            inputs,
            outputs,
            ..
        } = self;
        let binding = step.head_binding_of(rows).unwrap_or_default();
        inputs.past = binding.past;
        for (past, written) in inputs.past.iter_mut().zip(written) {
            *past = past.saturating_add(i32::try_from(*written).unwrap_or(i32::MAX));
        }
        inputs.block_table = binding.block_table;
        inputs.max_blocks = binding.max_blocks;
        let buffers = step.head_buffers();
        Ok(head.run(inputs, buffers, &mut [], Capture::Off, outputs, true)?)
    }
}

impl Drafter for HeadDrafter {
    fn source(&self) -> Source {
        Source::Head
    }

    fn propose(&mut self, drafting: &mut Drafting<'_, '_, '_>) -> Result<(), EngineError> {
        self.staged.clear();
        let readings = self.schedule(drafting);
        if readings.is_empty() {
            return Ok(());
        }
        self.read(drafting, &readings)?;
        let (mut chains, trees) = self.starts(drafting, &readings)?;
        self.grow(drafting, trees)?;
        for depth in 1.. {
            chains.retain(|chain| {
                let row = drafting.rows.get(chain.row);
                let worth = row.is_some_and(|row| {
                    let confidences = &row.proposal.confidences;
                    drafting.governor.worth_another(&row.choice, confidences)
                });
                chain.drafts > depth && worth
            });
            if chains.is_empty() {
                break;
            }
            self.chain(drafting, &mut chains, depth)?;
        }
        Ok(())
    }

    fn prepare(&mut self) {
        self.unread.reserve(self.staged.len());
    }

    fn publish(&mut self) {
        for (request, rows) in self.staged.drain(..) {
            if rows.is_empty() {
                self.unread.remove(&request);
            } else {
                self.unread.insert(request, rows);
            }
        }
    }

    fn discard(&mut self) {
        self.staged.clear();
    }

    fn fork(&mut self, from: RequestId, to: RequestId, cut: Cut) {
        let width = self.width();
        let rows = self.unread(from);
        let first = cut.committed - (rows.len() / width).min(cut.committed);
        let kept = cut.tokens.saturating_sub(first) * width;
        let rows = rows.get(..kept).unwrap_or(rows).to_vec();
        self.restore(to, rows);
    }

    fn transfer(&mut self, from: RequestId, to: RequestId) {
        if let Some(rows) = self.unread.remove(&from) {
            self.unread.insert(to, rows);
        }
    }

    fn forget(&mut self, of: RequestId) {
        self.unread.remove(&of);
    }

    fn unread(&self, of: RequestId) -> &[f32] {
        self.unread.get(&of).map_or(&[], Vec::as_slice)
    }

    fn restore(&mut self, of: RequestId, unread: Vec<f32>) {
        if !unread.is_empty() {
            self.unread.insert(of, unread);
        }
    }

    fn bytes(&self) -> usize {
        let rows = self.unread.values().map(Vec::capacity);
        rows.sum::<usize>() * size_of::<f32>()
    }
}

fn are_numbers<'a>(mut values: impl Iterator<Item = &'a f32>) -> bool {
    values.all(|value| value.is_finite())
}

/// The decoder's hidden rows of what a row keeps.
fn kept_rows<'a>(hidden: &'a [f32], row: &Decided, width: usize) -> &'a [f32] {
    let from = row.start * width;
    let rows = hidden.get(from..from + row.kept.get() * width);
    rows.unwrap_or_default()
}

/// The tokens that the head reads with the hidden rows of `count` tokens from `first` on: each row's follower. A request
/// that ends without a follower is never read again, so any token serves.
fn followers(active: Option<&Active>, row: &Decided, first: usize, count: usize) -> Vec<u32> {
    let known = active.map_or(&[][..], |active| active.tokens.as_slice());
    let after = known.get(first + 1..).unwrap_or_default();
    let filler = known.last().into_iter().cycle();
    let all = after.iter().chain(row.fresh()).chain(filler);
    all.take(count).copied().collect()
}

/// Draws a draft as the request would draw the token: with the same noise, so that a head that agrees with the decoder
/// drafts what the decoder will draw. `false` for logits that nothing can be drawn from: the row's drafts end there.
fn propose(row: &mut Decided, logits: &[f32], scratch: &mut Scratch) -> bool {
    let position = row.past + row.kept.get() + 1 + row.proposal.tree.len();
    let position = u64::try_from(position).unwrap_or(u64::MAX);
    let drawn = row.sampler.draw(logits, position, scratch);
    if let Ok(drawn) = &drawn {
        row.proposal.append(drawn.token, drawn.margin);
    }
    drawn.is_ok()
}
