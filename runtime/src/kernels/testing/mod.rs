//! What tests of kernels share: one-node graphs, random data, comparisons.

#![allow(
    clippy::cast_possible_truncation,
    reason = "cases are small and references are rounded to float32 on purpose"
)]

pub(super) mod one_node;

use std::sync::atomic::{AtomicUsize, Ordering};

use super::error::KernelError;
use super::parallel::{Parallel, Serial};

/// A small generator of pseudo-random numbers (SplitMix64): equal seeds, equal data.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// An integer in `0..limit`.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// `len` numbers, uniform in `-size..size`.
    pub(super) fn floats(&mut self, len: usize, size: f32) -> Vec<f32> {
        let unit = |bits: u64| (bits >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
        (0..len).map(|_| unit(self.next()) * size).collect()
    }

    /// `0..len` in random order.
    pub(super) fn permutation(&mut self, len: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..len).collect();
        for i in (1..len).rev() {
            all.swap(i, self.below(i + 1));
        }
        all
    }
}

/// Spreads work over threads of its own, in an order that differs from the serial one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Threads(pub(super) usize);

impl Parallel for Threads {
    fn spread(&self, items: usize, work: &(dyn Fn(usize) + Sync)) -> Result<(), KernelError> {
        let next = AtomicUsize::new(0);
        let pieces = || std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        std::thread::scope(|scope| {
            for _ in 0..self.0 {
                scope.spawn(|| {
                    pieces()
                        .take_while(|&item| item < items)
                        .for_each(|item| work(items - 1 - item));
                });
            }
        });
        Ok(())
    }

    fn run(
        &self,
        items: usize,
        _: usize,
        work: &(dyn Fn(usize) + Sync),
    ) -> Result<(), KernelError> {
        self.spread(items, work)
    }
}

/// Keeps `Serial` from being replaced by accident: the reference everything is compared with.
pub(super) const SERIAL: Serial = Serial;

/// Row starts of rows of these lengths.
pub(super) fn cumulative(lengths: &[usize]) -> Vec<i32> {
    let mut sums = vec![0];
    for len in lengths {
        sums.push(sums[sums.len() - 1] + i32::try_from(*len).unwrap());
    }
    sums
}

/// Asserts that two tensors agree within `tolerance * (1 + |expected|)`.
#[track_caller]
pub(super) fn assert_close<E: Copy + Into<f64>>(
    what: &str,
    found: &[f32],
    expected: &[E],
    tolerance: f64,
) {
    assert_eq!(found.len(), expected.len(), "{what}: lengths");
    for (at, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let (found, expected) = (f64::from(found), expected.into());
        let difference = (found - expected).abs();
        assert!(
            difference <= tolerance * (1.0 + expected.abs()),
            "{what}[{at}]: found {found}, expected {expected}, difference {difference:e}"
        );
    }
}

/// Asserts that two tensors have the same bits.
#[track_caller]
pub(super) fn assert_same(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}: lengths");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(
            found.to_bits(),
            expected.to_bits(),
            "{what}[{at}]: {found} and {expected}"
        );
    }
}

/// Rows of a batch over a bank: what each reads, writes and captures.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    pub(super) lengths: Vec<usize>,
    pub(super) bank_rows: usize,
    pub(super) read: Vec<i32>,
    pub(super) write: Vec<i32>,
    pub(super) counts: Vec<i32>,
}

impl Rows {
    /// Rows of these lengths. Some read the zero row or a row that others read too, some write
    /// nothing; row `r` captures `captured(random, r)` tokens.
    pub(super) fn random(
        random: &mut Random,
        lengths: &[usize],
        mut captured: impl FnMut(&mut Random, usize) -> usize,
    ) -> Self {
        let bank_rows = 2 * lengths.len() + 3;
        let zero = bank_rows - 1;
        let free: Vec<usize> = random
            .permutation(bank_rows)
            .into_iter()
            .filter(|&row| row != zero)
            .collect();
        let (readable, writable) = free.split_at(lengths.len());
        let mut pick = |of: &[usize]| of[random.below(of.len())];
        let read = lengths.iter().map(|_| {
            if pick(&[0, 1, 2, 3]) == 0 {
                zero
            } else {
                pick(readable)
            }
        });
        let read = read.map(|row| row as i32).collect();
        let write = |random: &mut Random, row: usize| match random.below(4) {
            0 => -1,
            _ => writable[row] as i32,
        };
        let write = (0..lengths.len()).map(|row| write(random, row)).collect();
        let counts = (0..lengths.len())
            .map(|row| captured(random, row).min(lengths[row]) as i32)
            .collect();
        Self {
            lengths: lengths.to_vec(),
            bank_rows,
            read,
            write,
            counts,
        }
    }

    pub(super) fn tokens(&self) -> usize {
        self.lengths.iter().sum()
    }

    pub(super) fn start(&self, row: usize) -> usize {
        self.lengths[..row].iter().sum()
    }

    /// A bank of `width` floats per row whose last row is zero.
    pub(super) fn bank(&self, random: &mut Random, width: usize, size: f32) -> Vec<f32> {
        let mut bank = random.floats(self.bank_rows * width, size);
        bank[(self.bank_rows - 1) * width..].fill(0.0);
        bank
    }

    /// The bank row that a row reads.
    pub(super) fn source<'b>(&self, bank: &'b [f32], row: usize) -> &'b [f32] {
        let width = bank.len() / self.bank_rows;
        &bank[self.read[row] as usize * width..][..width]
    }

    /// Only row `row`, with the same bank.
    pub(super) fn only(&self, row: usize) -> Self {
        Self {
            lengths: vec![self.lengths[row]],
            bank_rows: self.bank_rows,
            read: vec![self.read[row]],
            write: vec![self.write[row]],
            counts: vec![self.counts[row]],
        }
    }
}
