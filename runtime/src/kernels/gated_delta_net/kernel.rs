//! One step of `pawl::GatedDeltaNet`, without ONNX Runtime.

#![allow(unsafe_code)]
#![expect(
    clippy::indexing_slicing,
    reason = "extents are those of the layer, checked at the entry"
)]

use super::super::batch::{BankRows, Batch, Captures, CheckpointForm, Checkpoints};
use super::super::error::KernelError;
use super::super::isa::{Isa, Level, versioned};
use super::super::memory::Cells;
use super::super::owed::Deferred;
use super::super::parallel::Parallel;
use super::super::scratch::Scratch;
use super::chunked::{CHUNK, Dims, Work};
use super::layout::Heads;
use super::prepare::{Inputs, Prepared};
use super::recurrent::{Head, Strip, advance_strip};

/// State rows of a head that go through all tokens together.
const STRIP: usize = 16;

/// Longest row that is always taken token by token.
const SHORT: usize = 16;

/// One step over a packed batch. Every tensor has the shape that `heads` and `batch` imply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step<'a> {
    /// Instructions to use.
    pub(crate) level: Level,
    /// Heads and head sizes.
    pub(crate) heads: Heads,
    /// Token-major inputs.
    pub(crate) inputs: Inputs<'a>,
    /// Rows.
    pub(crate) batch: &'a Batch,
    /// Bank rows: none is both a source and a target.
    pub(crate) rows: &'a BankRows,
    /// `[bank_rows, values, value_dim, key_dim]`.
    pub(crate) bank: Cells<'a>,
    /// `[tokens, values * value_dim]`.
    pub(crate) output: Cells<'a>,
    /// Captured tokens.
    pub(crate) captures: &'a Captures,
    /// Form and slots of `slots`.
    pub(crate) checkpoints: Checkpoints,
    /// Update form `[slots, rows, transition width]`, state form
    /// `[slots, rows, values, value_dim, key_dim]`.
    pub(crate) slots: Option<Cells<'a>>,
    /// States that are made before they are read; no other row of the step reads one of them.
    pub(crate) deferred: &'a Deferred,
}

/// Runs a step. A row's outputs depend on that row alone.
pub(crate) fn run(
    step: &Step<'_>,
    prepared: &mut Prepared,
    threads: &dyn Parallel,
) -> Result<(), KernelError> {
    let level = step.level;
    prepared.fill(step.heads, step.inputs, level, threads)?;
    let prepared = &*prepared;
    capture_factors(step, prepared);
    let tokens = step.inputs.qkv.len() / step.heads.packed().max(1);
    let rows = step.batch.rows();
    let cost = 4 * step.heads.head_state() * tokens.div_ceil(rows.max(1));
    threads.run(rows * step.heads.values, cost, &|item| {
        let at = At {
            row: item / step.heads.values,
            head: item % step.heads.values,
        };
        step.make_owed(at);
        if step.batch.range(at.row).len() <= SHORT {
            let mut scratch = Scratch::lend(STRIP * step.heads.key_dim);
            recur(level, step, prepared, at, scratch.floats());
        } else {
            let mut scratch = Scratch::lend(chunk_dims(step.heads).scratch());
            recur_in_chunks(level, step, prepared, at, scratch.floats());
        }
    })
}

/// A value head of a batch row.
#[derive(Clone, Copy)]
struct At {
    row: usize,
    head: usize,
}

impl<'a> Step<'a> {
    /// The slot of local token `t`, if it is captured: its index, which counts elements.
    fn slot(&self, row: usize, t: usize) -> Option<usize> {
        if t >= self.captures.count(row) {
            return None;
        }
        let (slot, width) = match self.checkpoints.form {
            CheckpointForm::None => return None,
            CheckpointForm::Update => (t, self.heads.transition().width()),
            CheckpointForm::State => (
                self.checkpoints.slots + t - self.batch.range(row).len(),
                self.heads.state(),
            ),
        };
        Some((slot * self.batch.rows() + row) * width)
    }

    /// Makes the state that a head of a row reads, if that was put off.
    fn make_owed(&self, at: At) {
        if self.deferred.has(at.row) {
            let len = self.heads.head_state();
            let start = self.rows.source(at.row) * self.heads.state() + at.head * len;
            // SAFETY: only this row of the step reads the bank row, none writes it, and this piece of work alone has the
            // head, which it reads later.
            let state = unsafe { self.bank.part_mut(start, len) };
            self.deferred.make(at.row, at.head, state);
        }
    }

    fn head<'p>(&self, prepared: &'p Prepared, at: At) -> Head<'p> {
        let (key_head, start) = (self.heads.key_head(at.head), self.batch.range(at.row).start);
        Head {
            queries: prepared.queries(key_head, start),
            keys: prepared.keys(key_head, start),
            decays: prepared.decays(at.head, start),
            rates: prepared.rates(at.head, start),
            key_dim: self.heads.key_dim,
        }
    }

    /// Values of a packed token, of one head from `first` on.
    fn values(&self, token: usize, head: usize, first: usize, len: usize) -> &'a [f32] {
        let Heads {
            keys,
            key_dim,
            value_dim,
            ..
        } = self.heads;
        let start = token * self.heads.packed() + 2 * keys * key_dim + head * value_dim + first;
        &self.inputs.qkv[start..start + len]
    }

    /// Where the output of a packed token is, of one head from `first` on.
    fn output_at(&self, token: usize, head: usize, first: usize) -> usize {
        (token * self.heads.values + head) * self.heads.value_dim + first
    }
}

const fn chunk_dims(heads: Heads) -> Dims {
    Dims {
        key: heads.key_dim,
        value: heads.value_dim,
    }
}

/// Writes decays and keys of captured transitions (update form).
fn capture_factors(step: &Step<'_>, prepared: &Prepared) {
    let Some(slots) = step.slots else { return };
    if step.checkpoints.form != CheckpointForm::Update {
        return;
    }
    let layout = step.heads.transition();
    for row in 0..step.batch.rows() {
        let start = step.batch.range(row).start;
        for t in 0..step.captures.count(row) {
            let Some(slot) = step.slot(row, t) else {
                continue;
            };
            // SAFETY: nothing else runs, and the part ends with this iteration.
            let slot = unsafe { slots.part_mut(slot, layout.width()) };
            for head in 0..step.heads.values {
                slot[layout.decay(head).start] = prepared.decays(head, start + t)[0];
            }
            for head in 0..step.heads.keys {
                let key = &prepared.keys(head, start + t)[..step.heads.key_dim];
                slot[layout.key(head)].copy_from_slice(key);
            }
        }
    }
}

versioned!(
    fn recur(step: &Step<'_>, prepared: &Prepared, at: At, scratch: &mut [f32]) => recur_body
);

#[inline(always)]
fn recur_body<I: Isa>(isa: I, step: &Step<'_>, prepared: &Prepared, at: At, scratch: &mut [f32]) {
    let Heads {
        key_dim, value_dim, ..
    } = step.heads;
    let head = step.head(prepared, at);
    let offset = |row: usize| row * step.heads.state() + at.head * step.heads.head_state();
    let source = offset(step.rows.source(at.row));
    let target = step.rows.target(at.row).map(offset);
    for first in (0..value_dim).step_by(STRIP) {
        let rows = STRIP.min(value_dim - first);
        let len = rows * key_dim;
        // SAFETY: no other piece of work writes what this one reads, and this one did before.
        let before = unsafe { step.bank.part(source + first * key_dim, len) };
        let state = match target {
            // SAFETY: one batch row writes a bank row, nobody reads it, and this piece of work alone
            // has this head.
            Some(target) => unsafe { step.bank.part_mut(target + first * key_dim, len) },
            None => &mut scratch[..len],
        };
        recur_strip(isa, step, (&head, at), first, (before, state));
    }
}

#[inline(always)]
fn recur_strip<I: Isa>(
    isa: I,
    step: &Step<'_>,
    (head, at): (&Head<'_>, At),
    first: usize,
    (before, state): (&[f32], &mut [f32]),
) {
    let rows = state.len() / step.heads.key_dim;
    let start = step.batch.range(at.row).start;
    let mut before = Some(before);
    let mut delta = [0.0; STRIP];
    for t in 0..step.batch.range(at.row).len() {
        let output_at = step.output_at(start + t, at.head, first);
        // SAFETY: this piece of work alone has this head of this row.
        let output = unsafe { step.output.part_mut(output_at, rows) };
        let value = step.values(start + t, at.head, first, rows);
        let delta = &mut delta[..rows];
        let before = before.take();
        advance_strip(
            isa,
            head.token(t),
            &mut Strip {
                before,
                state,
                value,
                delta,
                output,
            },
        );
        if let (Some(slots), Some(slot)) = (step.slots, step.slot(at.row, t)) {
            capture(step, slots, slot, (at.head, first), (state, delta));
        }
    }
}

versioned!(
    fn recur_in_chunks(step: &Step<'_>, prepared: &Prepared, at: At, scratch: &mut [f32])
        => chunks_body
);

#[inline(always)]
fn chunks_body<I: Isa>(isa: I, step: &Step<'_>, prepared: &Prepared, at: At, scratch: &mut [f32]) {
    let head = step.head(prepared, at);
    let len = step.heads.head_state();
    let offset = |row: usize| row * step.heads.state() + at.head * len;
    let mut work = Work::new(step.level, chunk_dims(step.heads), scratch);
    // SAFETY: no other piece of work writes what this one reads, and this one did before.
    work.load(unsafe { step.bank.part(offset(step.rows.source(at.row)), len) });
    let tokens = step.batch.range(at.row).len();
    for first in (0..tokens).step_by(CHUNK) {
        run_chunk(
            isa,
            step,
            &head,
            at,
            (first, CHUNK.min(tokens - first)),
            &mut work,
        );
    }
    if let Some(target) = step.rows.target(at.row).map(offset) {
        // SAFETY: one batch row writes a bank row, nobody reads it, and this piece of work alone has
        // this head.
        work.store(unsafe { step.bank.part_mut(target, len) });
    }
}

#[inline(always)]
fn run_chunk<I: Isa>(
    isa: I,
    step: &Step<'_>,
    head: &Head<'_>,
    at: At,
    (first, tokens): (usize, usize),
    work: &mut Work<'_>,
) {
    let width = step.heads.value_dim;
    let start = step.batch.range(at.row).start + first;
    for (t, values) in work.deltas.chunks_exact_mut(width).take(tokens).enumerate() {
        values.copy_from_slice(step.values(start + t, at.head, 0, width));
    }
    work.advance(isa, head, first, tokens);
    for (t, outputs) in work.outputs.chunks_exact(width).take(tokens).enumerate() {
        // SAFETY: this piece of work alone has this head of this row.
        let output = unsafe {
            step.output
                .part_mut(step.output_at(start + t, at.head, 0), width)
        };
        output.copy_from_slice(outputs);
    }
    let Some(slots) = step.slots else { return };
    for (t, deltas) in work.deltas.chunks_exact(width).take(tokens).enumerate() {
        // A row this long is captured in update form only.
        if let Some(slot) = step.slot(at.row, first + t) {
            capture(step, slots, slot, (at.head, 0), (&[], deltas));
        }
    }
}

/// Writes what a strip leaves behind at one captured token.
fn capture(
    step: &Step<'_>,
    slots: Cells<'_>,
    slot: usize,
    (head, first): (usize, usize),
    (state, delta): (&[f32], &[f32]),
) {
    let (start, from) = match step.checkpoints.form {
        CheckpointForm::None => return,
        CheckpointForm::Update => (step.heads.transition().delta(head).start + first, delta),
        CheckpointForm::State => (
            head * step.heads.head_state() + first * step.heads.key_dim,
            state,
        ),
    };
    // SAFETY: this piece of work alone has this head of this row.
    let to = unsafe { slots.part_mut(slot + start, from.len()) };
    to.copy_from_slice(from);
}
