//! Small pieces of arithmetic that compile to vector code inside a kernel's body.

#![expect(
    clippy::indexing_slicing,
    reason = "lanes are indexed within an array of their length"
)]

use super::isa::Isa;

/// Floats handled together.
pub(super) const LANES: usize = 16;

/// One vector's worth of floats.
pub(super) type Lanes = [f32; LANES];

/// Sum of the lanes, always in the same order.
#[inline(always)]
pub(super) fn sum(lanes: &Lanes) -> f32 {
    let mut half = [0.0_f32; 8];
    for (i, h) in half.iter_mut().enumerate() {
        *h = lanes[i] + lanes[i + 8];
    }
    let quarter = [
        half[0] + half[4],
        half[1] + half[5],
        half[2] + half[6],
        half[3] + half[7],
    ];
    (quarter[0] + quarter[2]) + (quarter[1] + quarter[3])
}

/// Inner product of two slices of one length.
#[inline(always)]
pub(super) fn dot<I: Isa>(a: &[f32], b: &[f32]) -> f32 {
    let (mut first, mut second) = ([0.0; LANES], [0.0; LANES]);
    let (a_wide, a_rest) = a.as_chunks::<LANES>();
    let (b_wide, b_rest) = b.as_chunks::<LANES>();
    let (a_pairs, a_odd) = a_wide.as_chunks::<2>();
    let (b_pairs, b_odd) = b_wide.as_chunks::<2>();
    for (x, y) in a_pairs.iter().zip(b_pairs) {
        accumulate::<I>(&mut first, &x[0], &y[0]);
        accumulate::<I>(&mut second, &x[1], &y[1]);
    }
    for (x, y) in a_odd.iter().zip(b_odd) {
        accumulate::<I>(&mut first, x, y);
    }
    let mut rest = 0.0;
    for (&x, &y) in a_rest.iter().zip(b_rest) {
        rest = I::fma(x, y, rest);
    }
    for (x, y) in first.iter_mut().zip(second) {
        *x += y;
    }
    sum(&first) + rest
}

/// `into += a * b`, lane by lane.
#[inline(always)]
pub(super) fn accumulate<I: Isa>(into: &mut Lanes, a: &Lanes, b: &Lanes) {
    for (i, lane) in into.iter_mut().enumerate() {
        *lane = I::fma(a[i], b[i], *lane);
    }
}

/// `e^x` within one unit in the last place; 0 below -87.3, finite up to 88.3; NaN stays NaN.
#[inline(always)]
pub(super) fn exp<I: Isa>(x: f32) -> f32 {
    const LOWEST: f32 = -87.336_54;
    const HIGHEST: f32 = 88.376_26;
    /// Adding it rounds to an integer, which then sits in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let tiny = x < LOWEST;
    let x = if x < LOWEST { LOWEST } else { x };
    let x = if x > HIGHEST { HIGHEST } else { x };
    let shifted = I::fma(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = I::fma(n, -0.693_359_375, x);
    let r = I::fma(n, 2.121_944_4e-4, r);
    let mut p = 1.985_276_2e-4;
    for c in [
        1.393_043_5e-3,
        8.333_361e-3,
        4.166_648_5e-2,
        1.666_666_7e-1,
        0.5,
    ] {
        p = I::fma(p, r, c);
    }
    let p = I::fma(p, r * r, r) + 1.0;
    let power = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    if tiny { 0.0 } else { p * power }
}

/// `x * sigmoid(x)`.
#[inline(always)]
pub(super) fn silu<I: Isa>(x: f32) -> f32 {
    x / (1.0 + exp::<I>(-x))
}
