//! The arithmetic of `pawl::CausalConv`, without ONNX Runtime.

#![allow(unsafe_code)]
#![expect(
    clippy::indexing_slicing,
    reason = "blocks are cut to lengths checked at the entry"
)]

use std::ops::Range;

use super::super::batch::{BankRows, Batch, Captures, CheckpointForm, Checkpoints};
use super::super::error::KernelError;
use super::super::isa::{Isa, Level, versioned};
use super::super::math::silu;
use super::super::memory::Cells;
use super::super::parallel::Parallel;

/// Channels that one piece of work covers.
const BLOCK: usize = 128;

/// Widest kernel.
pub(crate) const MAX_WIDTH: usize = 16;

/// What follows the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    /// Nothing.
    None,
    /// `y * sigmoid(y)`.
    Silu,
}

/// Weights in the order the kernel reads them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taps {
    channels: usize,
    width: usize,
    by_tap: Vec<f32>,
}

impl Taps {
    /// Regroups `weight`, `[channels, width]`, by tap.
    pub(crate) fn pack(&mut self, weight: &[f32], channels: usize, width: usize) {
        self.channels = channels;
        self.width = width;
        self.by_tap.clear();
        self.by_tap
            .extend((0..width).flat_map(|tap| (0..channels).map(move |c| weight[c * width + tap])));
    }

    /// Channels.
    pub(crate) const fn channels(&self) -> usize {
        self.channels
    }

    /// Taps, the current token's included.
    pub(crate) const fn width(&self) -> usize {
        self.width
    }

    fn of(&self, tap: usize, channels: &Range<usize>) -> &[f32] {
        let start = tap * self.channels + channels.start;
        &self.by_tap[start..start + channels.len()]
    }
}

/// One step over a packed batch. Every tensor has the shape that `taps` and `batch` imply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step<'a> {
    /// `[tokens, channels]`.
    pub(crate) x: &'a [f32],
    /// Weights.
    pub(crate) taps: &'a Taps,
    /// `[channels]`.
    pub(crate) bias: Option<&'a [f32]>,
    /// What follows the sum.
    pub(crate) activation: Activation,
    /// Rows.
    pub(crate) batch: &'a Batch,
    /// Bank rows, none of which is both read and written.
    pub(crate) rows: &'a BankRows,
    /// `[bank_rows, channels, width - 1]`, oldest sample first.
    pub(crate) bank: Cells<'a>,
    /// `[tokens, channels]`.
    pub(crate) y: Cells<'a>,
    /// Captured tokens.
    pub(crate) captures: &'a Captures,
    /// Form and slots of `slots`.
    pub(crate) checkpoints: Checkpoints,
    /// Update form `[slots, rows, channels]`, state form `[slots, rows, channels, width - 1]`.
    pub(crate) slots: Option<Cells<'a>>,
}

/// Runs a step. A row's outputs depend on that row alone.
pub(crate) fn run(
    step: &Step<'_>,
    level: Level,
    threads: &dyn Parallel,
) -> Result<(), KernelError> {
    let blocks = step.taps.channels.div_ceil(BLOCK);
    let tokens = step.x.len() / step.taps.channels.max(1);
    let items = step.batch.rows() * blocks;
    let cost = BLOCK * (step.taps.width + 8) * tokens.div_ceil(step.batch.rows().max(1));
    threads.run(items, cost, &|item| {
        let start = item % blocks * BLOCK;
        let channels = start..(start + BLOCK).min(step.taps.channels);
        convolve_block(level, step, item / blocks, channels);
    })
}

versioned!(fn convolve_block(step: &Step<'_>, row: usize, channels: Range<usize>) => convolve_body);

/// Samples before the first token of a row, by age and then channel.
struct History {
    samples: [[f32; BLOCK]; MAX_WIDTH],
    len: usize,
}

impl History {
    #[inline(always)]
    fn load(state: &[f32], len: usize) -> Self {
        let mut samples = [[0.0; BLOCK]; MAX_WIDTH];
        for (c, ages) in state.chunks_exact(len.max(1)).enumerate() {
            for (age, &sample) in ages.iter().enumerate() {
                samples[age][c] = sample;
            }
        }
        Self { samples, len }
    }
}

/// The padded sequence of one row and one block of channels: its history, then its tokens.
struct Padded<'a> {
    history: &'a History,
    x: &'a [f32],
    stride: usize,
    first: usize,
    channels: Range<usize>,
}

impl Padded<'_> {
    /// Samples at padded position `at` (`history.len` is the first token).
    #[inline(always)]
    fn at(&self, at: usize) -> &[f32] {
        if at < self.history.len {
            return &self.history.samples[at][..self.channels.len()];
        }
        let start = (self.first + at - self.history.len) * self.stride + self.channels.start;
        &self.x[start..start + self.channels.len()]
    }

    /// Writes the state after `tokens` tokens, `[channels of the block, history.len]`.
    #[inline(always)]
    fn store(&self, tokens: usize, state: &mut [f32]) {
        let len = self.history.len;
        for age in 0..len {
            for (c, &sample) in self.at(tokens + age).iter().enumerate() {
                state[c * len + age] = sample;
            }
        }
    }
}

#[inline(always)]
fn convolve_body<I: Isa>(isa: I, step: &Step<'_>, row: usize, channels: Range<usize>) {
    let stride = step.taps.channels;
    let tokens = step.batch.range(row);
    let before = step.taps.width - 1;
    let (offset, len) = (channels.start * before, channels.len() * before);
    let source = step.rows.source(row) * stride * before + offset;
    // SAFETY: bank rows that are read are not written in this step.
    let history = History::load(unsafe { step.bank.part(source, len) }, before);
    let padded = Padded {
        history: &history,
        x: step.x,
        stride,
        first: tokens.start,
        channels: channels.clone(),
    };
    for t in 0..tokens.len() {
        let start = (tokens.start + t) * stride + channels.start;
        // SAFETY: this piece of work alone has this row and these channels.
        let y = unsafe { step.y.part_mut(start, channels.len()) };
        convolve_token(isa, step, &padded, t, y);
    }
    if let Some(target) = step.rows.target(row) {
        // SAFETY: one batch row writes a bank row, and nobody reads it.
        let state = unsafe { step.bank.part_mut(target * stride * before + offset, len) };
        padded.store(tokens.len(), state);
    }
    capture(step, row, &padded);
}

#[inline(always)]
fn convolve_token<I: Isa>(isa: I, step: &Step<'_>, padded: &Padded<'_>, t: usize, y: &mut [f32]) {
    match step.bias {
        Some(bias) => y.copy_from_slice(&bias[padded.channels.clone()]),
        None => y.fill(0.0),
    }
    for tap in 0..step.taps.width {
        let (weights, samples) = (step.taps.of(tap, &padded.channels), padded.at(t + tap));
        for ((y, &w), &x) in y.iter_mut().zip(weights).zip(samples) {
            *y = isa.fma(w, x, *y);
        }
    }
    if step.activation == Activation::Silu {
        for y in y {
            *y = silu(isa, *y);
        }
    }
}

#[inline(always)]
fn capture(step: &Step<'_>, row: usize, padded: &Padded<'_>) {
    let Some(slots) = step.slots else { return };
    let before = padded.history.len;
    let size = match step.checkpoints.form {
        CheckpointForm::None => return,
        CheckpointForm::Update => 1,
        CheckpointForm::State => before,
    };
    for t in 0..step.captures.count(row) {
        let start = ((t * step.batch.rows() + row) * padded.stride + padded.channels.start) * size;
        // SAFETY: this piece of work alone has this row and these channels.
        let slot = unsafe { slots.part_mut(start, padded.channels.len() * size) };
        if step.checkpoints.form == CheckpointForm::State {
            padded.store(t + 1, slot);
        } else {
            slot.copy_from_slice(padded.at(before + t));
        }
    }
}

/// The state after the first `kept` captured tokens: `state` with their samples appended.
///
/// `state` and `into` are `[channels, width - 1]`; `samples(t)` is the captured `[channels]` of local
/// token `t`. The copy is exact.
pub(crate) fn replay<'s>(
    state: &[f32],
    channels: usize,
    samples: impl Fn(usize) -> &'s [f32],
    kept: usize,
    into: &mut [f32],
) {
    let before = (state.len() / channels.max(1)).max(1);
    for age in 0..before {
        let at = age + kept;
        if at < before {
            for (to, from) in into
                .chunks_exact_mut(before)
                .zip(state.chunks_exact(before))
            {
                to[age] = from[at];
            }
        } else {
            for (to, &sample) in into.chunks_exact_mut(before).zip(samples(at - before)) {
                to[age] = sample;
            }
        }
    }
}
