//! Drafts by lookup: what followed the last time the text ended like this.

/// Longest and shortest ending that is looked up. A longer match is the better guess.
const LONGEST: usize = 8;
const SHORTEST: usize = 2;

/// Up to `most` tokens that followed the latest earlier occurrence of the longest matching ending of `tokens`.
pub(crate) fn propose(tokens: &[u32], most: usize) -> Vec<u32> {
    let mut best: &[u32] = &[];
    let mut longest = SHORTEST - 1;
    // The match ends before `end`; a later occurrence wins among equals, so the search goes backwards.
    for end in (1..tokens.len()).rev() {
        let (Some(before), Some(after)) = (tokens.get(..end), tokens.get(end..)) else {
            break;
        };
        let length = common_ending(before, tokens);
        if length > longest {
            (longest, best) = (length, after);
            if longest >= LONGEST {
                break;
            }
        }
    }
    best.iter().take(most).copied().collect()
}

fn common_ending(a: &[u32], b: &[u32]) -> usize {
    a.iter()
        .rev()
        .zip(b.iter().rev())
        .take(LONGEST)
        .take_while(|(a, b)| a == b)
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_longest_then_the_latest_match_wins() {
        assert_eq!(propose(&[1, 2, 3, 4, 9, 1, 2, 3], 2), [4, 9]);
        assert_eq!(propose(&[1, 2, 7, 1, 2, 8, 1, 2], 1), [8]);
        assert_eq!(propose(&[5, 1, 2, 7, 1, 2, 8, 5, 1, 2], 1), [7]);
        assert!(propose(&[1, 2, 3, 1], 4).is_empty());
        assert!(propose(&[], 4).is_empty());
    }

    proptest! {
        #[test]
        fn a_draft_followed_the_ending_before(
            tokens in proptest::collection::vec(0_u32..4, 0..60), most in 0_usize..8,
        ) {
            let found = propose(&tokens, most);
            prop_assert!(found.len() <= most);
            if !found.is_empty() {
                let ending = &tokens[tokens.len() - SHORTEST..];
                let followed = tokens.windows(SHORTEST + found.len()).any(|window| {
                    window[..SHORTEST] == *ending && window[SHORTEST..] == found[..]
                });
                prop_assert!(followed);
            }
        }
    }
}
