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
use super::super::scratch::Scratch;

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
        let mut history = Scratch::lend((step.taps.width - 1) * BLOCK);
        convolve_block(level, step, item / blocks, channels, history.floats());
    })
}

versioned!(
    fn convolve_block(step: &Step<'_>, row: usize, channels: Range<usize>, history: &mut [f32])
        => convolve_body
);

/// Samples before the first token of a row, by age and then channel.
struct History<'a> {
    /// `[len, BLOCK]`, of which each row's leading channels are filled.
    samples: &'a [f32],
    len: usize,
}

impl<'a> History<'a> {
    /// Regroups `state`, `[channels, len]`.
    #[inline(always)]
    fn load(state: &[f32], len: usize, samples: &'a mut [f32]) -> Self {
        match len {
            1 => regroup::<1>(state, samples),
            2 => regroup::<2>(state, samples),
            3 => regroup::<3>(state, samples),
            _ => {
                for (c, ages) in state.chunks_exact(len.max(1)).enumerate() {
                    for (age, &sample) in ages.iter().enumerate() {
                        samples[age * BLOCK + c] = sample;
                    }
                }
            }
        }
        Self { samples, len }
    }
}

/// [`History::load`] for a length known when compiling, which makes it shuffles of registers.
#[inline(always)]
fn regroup<const LEN: usize>(state: &[f32], samples: &mut [f32]) {
    let ages: &mut [[f32; BLOCK]] = samples.as_chunks_mut().0;
    let Some(ages) = ages.first_chunk_mut::<LEN>() else {
        return;
    };
    for (c, from) in state.as_chunks::<LEN>().0.iter().enumerate().take(BLOCK) {
        for (age, &sample) in from.iter().enumerate() {
            ages[age][c] = sample;
        }
    }
}

/// The padded sequence of one row and one block of channels: its history, then its tokens.
struct Padded<'a> {
    history: &'a History<'a>,
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
            return &self.history.samples[at * BLOCK..][..self.channels.len()];
        }
        let start = (self.first + at - self.history.len) * self.stride + self.channels.start;
        &self.x[start..start + self.channels.len()]
    }

    /// Writes the state after `tokens` tokens, `[channels of the block, history.len]`.
    #[inline(always)]
    fn store(&self, tokens: usize, state: &mut [f32]) {
        let len = self.history.len;
        if len == 3 {
            let ages: [&[f32]; 3] = std::array::from_fn(|age| self.at(tokens + age));
            for (c, to) in state.as_chunks_mut().0.iter_mut().enumerate() {
                *to = [ages[0][c], ages[1][c], ages[2][c]];
            }
            return;
        }
        for age in 0..len {
            for (c, &sample) in self.at(tokens + age).iter().enumerate() {
                state[c * len + age] = sample;
            }
        }
    }
}

#[inline(always)]
fn convolve_body<I: Isa>(
    isa: I,
    step: &Step<'_>,
    row: usize,
    channels: Range<usize>,
    history: &mut [f32],
) {
    let stride = step.taps.channels;
    let tokens = step.batch.range(row);
    let before = step.taps.width - 1;
    let (offset, len) = (channels.start * before, channels.len() * before);
    let source = step.rows.source(row) * stride * before + offset;
    // SAFETY: bank rows that are read are not written in this step.
    let history = History::load(unsafe { step.bank.part(source, len) }, before, history);
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

/// Appends the samples of the first `kept` captured tokens to a state, which then ends with the latest of them.
///
/// `state` is `[channels, width - 1]`; `samples(t)` is the captured `[channels]` of local token `t`. The copy is exact.
pub(crate) fn replay<'s>(
    channels: usize,
    samples: impl Fn(usize) -> &'s [f32],
    kept: usize,
    state: &mut [f32],
) {
    let before = (state.len() / channels.max(1)).max(1);
    // The widths there are in practice have loops of their own.
    match (before, kept.min(before)) {
        (3, 1) => append::<3, 1>(samples, kept, state),
        (3, 2) => append::<3, 2>(samples, kept, state),
        (3, 3) => append::<3, 3>(samples, kept, state),
        (_, fresh) => {
            for (channel, state) in state.chunks_exact_mut(before).enumerate() {
                state.copy_within(fresh.., 0);
                for (age, t) in (before - fresh..before).zip(kept - fresh..) {
                    state[age] = samples(t)[channel];
                }
            }
        }
    }
}

/// As [`replay`], where a channel keeps `BEFORE` samples of which the last `FRESH` are new.
fn append<'s, const BEFORE: usize, const FRESH: usize>(
    samples: impl Fn(usize) -> &'s [f32],
    kept: usize,
    state: &mut [f32],
) {
    // All channels move at once: what comes into one from the next is what fresh samples replace.
    if FRESH < BEFORE {
        state.copy_within(FRESH.., 0);
    }
    let (state, _) = state.as_chunks_mut::<BEFORE>();
    let fresh: [&[f32]; FRESH] =
        std::array::from_fn(|index| &samples(kept - FRESH + index)[..state.len()]);
    for (channel, state) in state.iter_mut().enumerate() {
        for (age, fresh) in (BEFORE - FRESH..).zip(fresh) {
            state[age] = fresh[channel];
        }
    }
}
