//! Comparisons with an absolute bound.

/// The largest absolute difference; infinite when the lengths differ or a value is not a number.
#[must_use]
pub fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    if a.len() != b.len() {
        return f32::INFINITY;
    }
    a.iter().zip(b).fold(0.0, |worst: f32, (x, y)| {
        let difference = (x - y).abs();
        if difference.is_nan() {
            f32::INFINITY
        } else {
            worst.max(difference)
        }
    })
}

/// Fails with the place when two tensors differ by more than `bound`.
///
/// # Panics
///
/// When they do.
pub fn assert_close(what: &str, found: &[f32], expected: &[f32], bound: f32) {
    assert_eq!(
        found.len(),
        expected.len(),
        "{what}: {} values, expected {}",
        found.len(),
        expected.len()
    );
    let worst = largest_difference(found, expected);
    assert!(
        worst <= bound,
        "{what}: differs by {worst:e}, at most {bound:e} allowed"
    );
}

/// Greedy tokens must agree up to the first step whose recorded margin is at most `tie`. Returns the number of steps compared.
///
/// # Panics
///
/// When they do not.
#[must_use]
pub fn assert_greedy(
    what: &str,
    found: &[u32],
    expected: &[u32],
    margin: &[f32],
    tie: f32,
) -> usize {
    let certain = margin
        .iter()
        .position(|m| *m <= tie)
        .unwrap_or(expected.len());
    assert!(
        found.len() >= certain,
        "{what}: {} tokens, expected {certain}",
        found.len()
    );
    assert_eq!(
        found[..certain],
        expected[..certain],
        "{what}: greedy tokens differ"
    );
    certain
}

/// Two runs of one request must draw the same tokens. Where they part, the only excuse is a near tie: a decision margin of
/// the expected run under `tie` at that token, which is printed. Returns the number of tokens that agree.
///
/// # Panics
///
/// When they part without excuse, or one of them is shorter.
#[must_use]
pub fn assert_same_draws(
    what: &str,
    found: &[u32],
    (expected, margins): (&[u32], &[f32]),
    tie: f32,
) -> usize {
    assert_eq!(expected.len(), margins.len(), "{what}: a margin per token");
    let parting = found.iter().zip(expected).position(|(a, b)| a != b);
    let Some(at) = parting else {
        assert_eq!(found, expected, "{what}: one is shorter");
        return found.len();
    };
    let (found, expected, margin) = (found[at], expected[at], margins[at]);
    println!("{what}: token {at} is {found}, not {expected}, at a margin of {margin:e}");
    assert!(
        margin < tie,
        "{what}: token {at} is {found}, not {expected}, at a margin of {margin:e}"
    );
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_a_length_and_a_nan_are_seen() {
        assert_eq!(largest_difference(&[1.0, 2.0], &[1.0, 2.5]), 0.5);
        assert_eq!(largest_difference(&[1.0], &[1.0, 2.0]), f32::INFINITY);
        assert_eq!(largest_difference(&[f32::NAN], &[1.0]), f32::INFINITY);
    }

    #[test]
    fn draws_may_part_at_a_near_tie_only() {
        let expected = (&[1, 2, 3][..], &[1.0, 9e-5, 1.0][..]);
        assert_eq!(assert_same_draws("same", &[1, 2, 3], expected, 1e-4), 3);
        assert_eq!(assert_same_draws("tie", &[1, 7, 8], expected, 1e-4), 1);
        for found in [&[1, 2, 7][..], &[1, 2], &[9, 2, 3]] {
            let parts = || assert_same_draws("differs", found, expected, 1e-4);
            assert!(std::panic::catch_unwind(parts).is_err(), "{found:?}");
        }
    }

    #[test]
    fn greedy_tokens_are_compared_up_to_the_first_tie() {
        let margin = [1.0, 0.5, 1e-4, 1.0];
        assert_eq!(
            assert_greedy("same", &[1, 2, 9, 9], &[1, 2, 3, 4], &margin, 1e-3),
            2
        );
        let differs =
            std::panic::catch_unwind(|| assert_greedy("x", &[1, 9], &[1, 2, 3, 4], &margin, 1e-3));
        assert!(differs.is_err());
    }
}
