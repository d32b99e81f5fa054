//! Weights in 8 bits: blocks of a row, each with a scale.
//!
//! A block of 32 weights becomes 32 bytes `q` and one float32 `scale`, and stands for `(q - 128) * scale`. The scale is the
//! largest magnitude of the block divided by 127, so that no value is off by more than half a scale and zero stays zero.

use pawl_models::Weight;

/// Weights of a block.
pub(crate) const BLOCK: usize = 32;
/// [`BLOCK`], as extents are counted.
pub(crate) const BLOCK_EXTENT: u64 = BLOCK as u64;
/// The byte that stands for zero.
const ZERO: u8 = 128;
/// The largest step away from zero.
const STEPS: f32 = 127.0;

/// One of the two tensors that a quantised weight becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Half {
    /// `uint8 [rows, blocks, 32]`.
    Values,
    /// `float32 [rows, blocks]`.
    Scales,
}

impl Half {
    /// Bytes of this half of so many weights, which are whole blocks.
    pub(crate) fn bytes(self, weights: usize) -> usize {
        match self {
            Self::Values => weights,
            Self::Scales => weights / BLOCK * size_of::<f32>(),
        }
    }

    /// Elements of this half of so many weights, which are whole blocks.
    pub(crate) fn elements(self, weights: u64) -> u64 {
        match self {
            Self::Values => weights,
            Self::Scales => weights / BLOCK_EXTENT,
        }
    }

    /// Quantises whole blocks into the [`bytes`](Self::bytes) of this half.
    pub(crate) fn encode(self, weights: &[f32], encoded: &mut [u8]) {
        let blocks = weights.as_chunks::<BLOCK>().0;
        match self {
            Self::Values => {
                for (bytes, block) in encoded.as_chunks_mut::<BLOCK>().0.iter_mut().zip(blocks) {
                    let scale = scale(block);
                    *bytes = block.map(|weight| value(weight, scale));
                }
            }
            Self::Scales => {
                for (bytes, block) in encoded.as_chunks_mut::<4>().0.iter_mut().zip(blocks) {
                    *bytes = scale(block).to_le_bytes();
                }
            }
        }
    }
}

/// Rows and blocks of a row, where no block would reach into the next row: a matrix of a width that is a multiple of 32.
pub(crate) fn shape(weight: &Weight) -> Option<[u64; 2]> {
    match *weight.shape {
        [rows, width] if width > 0 && width.is_multiple_of(BLOCK_EXTENT) => {
            Some([rows, width / BLOCK_EXTENT])
        }
        _ => None,
    }
}

/// The scale of a block. Zero for a block of zeros, and for one so small that its scale would have lost its precision
/// (no weight above 1.5e-36): it becomes zeros. NaN for a block with a NaN or infinite weight: its rows become NaN, as they would
/// with the weight itself in nearly every product, instead of a number that looks right.
fn scale(block: &[f32]) -> f32 {
    if !block.iter().all(|weight| weight.is_finite()) {
        return f32::NAN;
    }
    let largest = block.iter().fold(0.0_f32, |most, w| most.max(w.abs()));
    let scale = largest / STEPS;
    if scale < f32::MIN_POSITIVE {
        0.0
    } else {
        scale
    }
}

/// The byte of a weight under the scale of its block.
fn value(weight: f32, scale: f32) -> u8 {
    if scale == 0.0 || scale.is_nan() {
        return ZERO;
    }
    let steps = (weight / scale).round_ties_even().clamp(-STEPS, STEPS);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 1 and 255"
    )]
    let byte = (steps + f32::from(ZERO)) as u8;
    byte
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn quantized(block: &[f32]) -> (f32, Vec<u8>) {
        let scale = scale(block);
        (scale, block.iter().map(|w| value(*w, scale)).collect())
    }

    fn weights() -> impl Strategy<Value = Vec<f32>> {
        let any = any::<u32>().prop_map(f32::from_bits);
        let finite = any.prop_filter("finite", |w| w.is_finite());
        let near = prop_oneof![-1.0_f32..1.0, Just(0.0), Just(-0.0), Just(1.0)];
        prop_oneof![
            prop::collection::vec(finite, BLOCK),
            (prop::collection::vec(near, BLOCK), -126_i32..127).prop_map(|(block, exponent)| {
                let factor = 2.0_f32.powi(exponent);
                block.iter().map(|weight| weight * factor).collect()
            }),
        ]
    }

    proptest! {
        #[test]
        fn no_weight_is_off_by_more_than_half_a_scale(block in weights()) {
            let (scale, values) = quantized(&block);
            let largest = block.iter().fold(0.0_f32, |most, w| most.max(w.abs()));
            prop_assert!(scale >= 0.0 && scale.is_finite());
            prop_assert!(scale > 0.0 || largest <= 127.0 * f32::MIN_POSITIVE);
            prop_assert!(scale == 0.0 || scale >= f32::MIN_POSITIVE);
            // What the division of two float32 numbers may be off by, in steps.
            let half = 0.5 + 127.0 * f64::from(f32::EPSILON);
            let most = (f64::from(scale) * half).max(f64::from(f32::MIN_POSITIVE) * 127.0);
            for (weight, value) in block.iter().zip(values) {
                prop_assert!(value >= 1);
                let stands_for = (f64::from(value) - 128.0) * f64::from(scale);
                let off = (f64::from(*weight) - stands_for).abs();
                prop_assert!(off <= most, "{weight} became {stands_for} by {scale}");
                if weight.abs() == largest && scale > 0.0 {
                    prop_assert!(value == 255 || value == 1);
                }
            }
        }
    }

    #[test]
    fn zeros_and_extremes() {
        assert_eq!(quantized(&[0.0, -0.0]), (0.0, vec![128, 128]));
        assert_eq!(quantized(&[1e-44, -1e-44]), (0.0, vec![128, 128]));
        let (scale, values) = quantized(&[f32::MAX, f32::MIN, 0.0, 1.0]);
        assert_eq!(values, [255, 1, 128, 128]);
        assert!(scale.is_finite());
        assert_eq!(
            quantized(&[127.0, -0.5, 0.5, 1.5, -1.5]).1,
            [255, 128, 128, 130, 126]
        );
    }

    #[test]
    fn a_block_with_a_weight_that_is_no_number_is_none() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let (scale, values) = quantized(&[1.0, bad, -2.0]);
            assert!(scale.is_nan());
            assert_eq!(values, [128; 3]);
        }
    }

    #[test]
    fn only_matrices_of_whole_blocks_have_a_shape() {
        let of = |dims: &[u64]| shape(&Weight::whole("w", dims));
        assert_eq!(of(&[3, 64]), Some([3, 2]));
        for dims in [&[3, 0][..], &[3, 33], &[64], &[2, 2, 32], &[64, 31]] {
            assert_eq!(of(dims), None, "{dims:?}");
        }
    }
}
