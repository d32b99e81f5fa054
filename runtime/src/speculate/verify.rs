//! Sample-and-match: which drafts a row keeps.

/// What verification of one row decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verified {
    /// The tokens the request draws: the accepted drafts, then the target's own token.
    pub(crate) tokens: Vec<u32>,
    /// Drafts accepted.
    pub(crate) accepted: usize,
    /// Drafts that were compared: one more than accepted, unless all were.
    pub(crate) evaluated: usize,
}

/// Draws the target's token at each position and follows the drafts as far as they equal it. `draw(i)` draws from the
/// logits after the `i`-th draft (0: after the last known token). The target's token is always produced, so drafts
/// change how many tokens a step gives, never which.
///
/// # Errors
/// The first draw that fails.
pub(crate) fn verify<E>(
    drafts: &[u32],
    mut draw: impl FnMut(usize) -> Result<u32, E>,
) -> Result<Verified, E> {
    let mut tokens = Vec::with_capacity(drafts.len() + 1);
    for (index, draft) in drafts.iter().enumerate() {
        let token = draw(index)?;
        tokens.push(token);
        if token != *draft {
            return Ok(Verified {
                tokens,
                accepted: index,
                evaluated: index + 1,
            });
        }
    }
    tokens.push(draw(drafts.len())?);
    Ok(Verified {
        tokens,
        accepted: drafts.len(),
        evaluated: drafts.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a target that is a pure function of the tokens so far: the tokens are those of plain decoding.
        #[test]
        fn drafts_never_change_the_tokens(
            target in proptest::collection::vec(0_u32..3, 9),
            drafts in proptest::collection::vec(0_u32..3, 0..8),
        ) {
            let mut asked = Vec::new();
            let found = verify(&drafts, |i| { asked.push(i); Ok::<_, ()>(target[i]) }).unwrap();
            prop_assert_eq!(&found.tokens[..], &target[..found.tokens.len()]);
            prop_assert_eq!(found.tokens.len(), found.accepted + 1);
            let agree = drafts.iter().zip(&target).take_while(|(a, b)| a == b).count();
            prop_assert_eq!(found.accepted, agree);
            prop_assert_eq!(found.evaluated, (agree + 1).min(drafts.len()));
            prop_assert_eq!(asked, (0..=agree).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_failed_draw_ends_it() {
        assert_eq!(
            verify(&[1, 2], |i| if i == 1 { Err("no") } else { Ok(1) }),
            Err("no")
        );
    }
}
