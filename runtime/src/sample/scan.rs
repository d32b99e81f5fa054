//! Passes over a whole row of logits, written over lanes so that the compiler vectorises them.

use super::draw::DrawError;

const LANES: usize = 16;

/// The highest of some numbers, none of them NaN.
pub(super) fn max_of(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = if value > *lane { value } else { *lane };
        }
    }
    lanes.iter().chain(rest).fold(
        f32::NEG_INFINITY,
        |max, &value| if value > max { value } else { max },
    )
}

/// The highest logit, once every logit is known to be usable.
pub(super) fn highest(logits: &[f32]) -> Result<f32, DrawError> {
    if !all_usable(logits) {
        let token = logits
            .iter()
            .position(|&logit| !usable(logit))
            .unwrap_or_default();
        return Err(match logits.get(token) {
            Some(logit) if logit.is_nan() => DrawError::NotANumber { token },
            _ => DrawError::Infinite { token },
        });
    }
    let highest = max_of(logits);
    if highest == f32::NEG_INFINITY {
        return Err(DrawError::NothingToDraw {
            vocabulary: logits.len(),
        });
    }
    Ok(highest)
}

/// Neither NaN nor positive infinity.
fn usable(logit: f32) -> bool {
    logit < f32::INFINITY
}

fn all_usable(logits: &[f32]) -> bool {
    let mut lanes = [true; LANES];
    let (chunks, rest) = logits.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &logit) in lanes.iter_mut().zip(chunk) {
            *lane &= usable(logit);
        }
    }
    lanes.iter().all(|&lane| lane) && rest.iter().all(|&logit| usable(logit))
}

/// The highest logit besides one token's.
pub(super) fn second_highest(logits: &[f32], token: usize) -> f32 {
    let (before, after) = logits.split_at_checked(token).unwrap_or((logits, &[]));
    max_of(before).max(max_of(after.get(1..).unwrap_or_default()))
}

/// Sum of `exp((logit - highest) / temperature)` over a row.
pub(super) fn sum_of_weights(logits: &[f32], highest: f64, temperature: f64) -> f64 {
    logits
        .iter()
        .map(|&logit| ((f64::from(logit) - highest) / temperature).exp())
        .sum()
}
