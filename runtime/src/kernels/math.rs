//! Small pieces of arithmetic that compile to vector code inside a kernel's body.

use super::isa::Isa;

/// Inner product of two slices of one length.
#[inline(always)]
pub(super) fn dot<I: Isa>(isa: I, a: &[f32], b: &[f32]) -> f32 {
    let (mut even, mut odd) = (isa.splat(0.0), isa.splat(0.0));
    let pairs = a.chunks(2 * I::LANES).zip(b.chunks(2 * I::LANES));
    for (a, b) in pairs {
        let at = I::LANES.min(a.len()).min(b.len());
        let ((a, a_rest), (b, b_rest)) = (a.split_at(at), b.split_at(at));
        even = isa.mul_add(isa.get(a), isa.get(b), even);
        odd = isa.mul_add(isa.get(a_rest), isa.get(b_rest), odd);
    }
    isa.sum(isa.add(even, odd))
}

/// `e^x` within one unit in the last place; 0 below -87.3, finite up to 88.3; NaN stays NaN.
#[inline(always)]
pub(super) fn exp<I: Isa>(isa: I, x: f32) -> f32 {
    const LOWEST: f32 = -87.336_54;
    const HIGHEST: f32 = 88.376_26;
    /// Adding it rounds to an integer, which then sits in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let tiny = x < LOWEST;
    let x = if x < LOWEST { LOWEST } else { x };
    let x = if x > HIGHEST { HIGHEST } else { x };
    let shifted = isa.fma(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    #[expect(
        clippy::excessive_precision,
        reason = "the high part of ln 2 is exact as written"
    )]
    let r = isa.fma(n, -0.693_359_375, x);
    let r = isa.fma(n, 2.121_944_4e-4, r);
    let mut p = 1.985_276_2e-4;
    for c in [
        1.393_043_5e-3,
        8.333_361e-3,
        4.166_648_5e-2,
        1.666_666_7e-1,
        0.5,
    ] {
        p = isa.fma(p, r, c);
    }
    let p = isa.fma(p, r * r, r) + 1.0;
    let power = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    if tiny { 0.0 } else { p * power }
}

/// `x * sigmoid(x)`.
#[inline(always)]
pub(super) fn silu<I: Isa>(isa: I, x: f32) -> f32 {
    x / (1.0 + exp(isa, -x))
}

#[cfg(test)]
mod tests {
    #![allow(unsafe_code)]

    use super::super::isa::{Baseline, Level, versioned};
    use super::super::testing::{Random, assert_close};
    use super::*;

    versioned!(fn exponentials(x: &[f32], y: &mut [f32]) => exponentials_body);

    fn exponentials_body<I: Isa>(isa: I, x: &[f32], y: &mut [f32]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = exp(isa, x);
        }
    }

    #[test]
    fn exponentials_are_close() {
        let x: Vec<f32> = (-8700..8800_i16).map(|x| f32::from(x) / 100.0).collect();
        for level in Level::available() {
            let mut y = vec![0.0; x.len()];
            exponentials(level, &x, &mut y);
            for (&x, &y) in x.iter().zip(&y) {
                let expected = f64::from(x).exp();
                assert!(
                    (f64::from(y) / expected - 1.0).abs() < 1.5e-7,
                    "e^{x} = {y}"
                );
            }
        }
    }

    #[test]
    fn exponentials_at_the_edges() {
        let exp = |x| exp(Baseline, x);
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-0.0), 1.0);
        assert_eq!(exp(-88.0), 0.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert!(exp(f32::INFINITY).is_finite() && exp(f32::INFINITY) > 1e38);
        assert!(exp(f32::NAN).is_nan());
        assert!(silu(Baseline, f32::NAN).is_nan());
        assert!(silu(Baseline, -200.0).abs() < 1e-30);
        assert_eq!(silu(Baseline, 200.0), 200.0);
    }

    versioned!(fn one_dot(a: &[f32], b: &[f32], out: &mut f32) => one_dot_body);

    fn one_dot_body<I: Isa>(isa: I, a: &[f32], b: &[f32], out: &mut f32) {
        *out = dot(isa, a, b);
    }

    #[test]
    fn inner_products_of_any_length() {
        let mut random = Random::new(1);
        for len in 0..100 {
            let (a, b) = (random.floats(len, 1.0), random.floats(len, 1.0));
            let expected: f64 = a
                .iter()
                .zip(&b)
                .map(|(&a, &b)| f64::from(a) * f64::from(b))
                .sum();
            for level in Level::available() {
                let mut found = 0.0;
                one_dot(level, &a, &b, &mut found);
                assert_close("dot", &[found], &[expected], 1e-6);
            }
        }
    }
}
