//! Sample-and-match: which drafts a row keeps.

use super::rows::Rows;
use super::tree::DraftTree;

/// What verification of one row decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verified {
    /// The tokens the request draws: the accepted drafts, then the target's own token.
    pub(crate) tokens: Vec<u32>,
    /// Drafts accepted.
    pub(crate) accepted: usize,
    /// Drafts that were compared: one more than accepted, unless all were.
    pub(crate) evaluated: usize,
    /// The row whose prefix is kept: of the rows that hold the accepted drafts, the lowest.
    pub(crate) row: usize,
}

/// At each node of a tree of drafts the target's token is drawn once, and the child that equals it is followed.
/// `draw(None)` draws from the logits after the last known token, `draw(Some(node))` from those after a node, which are
/// those at its canonical place. Only nodes in `rows` can be followed. The token drawn is produced whether or not it is a
/// child, so a tree changes how many tokens a step gives, never which, however its nodes were chosen.
///
/// A draw after the first that fails ends the walk before it: the tokens drawn so far stand, and the draft that the last
/// of them equals is not kept, as if it had not been run. So what fails beyond the end of a request does not matter, and
/// what fails before it fails again as the first draw of a later step.
///
/// # Errors
/// The first draw, if it fails.
pub(crate) fn verify_tree<E>(
    tree: &DraftTree,
    rows: &Rows,
    mut draw: impl FnMut(Option<usize>) -> Result<u32, E>,
) -> Result<Verified, E> {
    let mut tokens = Vec::new();
    let (mut above, mut at) = (None, None);
    let mut cut = false;
    loop {
        let token = match draw(at) {
            Ok(token) => token,
            Err(error) if tokens.is_empty() => return Err(error),
            Err(_) => {
                (at, cut) = (above, true);
                break;
            }
        };
        tokens.push(token);
        let child = tree.child(at, token);
        let Some(next) = child.filter(|child| rows.canonical(*child).is_some()) else {
            break;
        };
        (above, at) = (at, Some(next));
    }
    let accepted = tokens.len() - 1;
    let place = at.and_then(|node| rows.canonical(node));
    Ok(Verified {
        tokens,
        accepted,
        evaluated: accepted + usize::from(!cut && rows.has_below(tree, at)),
        row: place.map_or(0, |(row, _)| row),
    })
}

#[cfg(test)]
#[path = "verify_tests.rs"]
pub(super) mod distribution;

#[cfg(test)]
mod tests {
    use super::super::tree::tests::trees;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Without branches, against a target that is a pure function of the tokens so far: the tokens are those of
        /// plain decoding, and drafts behind the first that differs are not looked at.
        #[test]
        fn drafts_never_change_the_tokens(
            target in proptest::collection::vec(0_u32..3, 9),
            drafts in proptest::collection::vec(0_u32..3, 0..8),
        ) {
            let tree = DraftTree::chain(drafts.iter().copied());
            let mut asked = Vec::new();
            let found = verify_tree(&tree, &Rows::of(&tree), |at| {
                let position = at.map_or(0, |node| node + 1);
                asked.push(position);
                Ok::<_, ()>(target[position])
            });
            let found = found.unwrap();
            prop_assert_eq!(&found.tokens[..], &target[..found.tokens.len()]);
            prop_assert_eq!(found.tokens.len(), found.accepted + 1);
            let agree = drafts.iter().zip(&target).take_while(|(a, b)| a == b).count();
            prop_assert_eq!(found.accepted, agree);
            prop_assert_eq!(found.evaluated, (agree + 1).min(drafts.len()));
            prop_assert_eq!(found.row, 0);
            prop_assert_eq!(asked, (0..=agree).collect::<Vec<_>>());
        }
    }

    /// The target's token after some tokens.
    fn target(salt: u64, before: &[u32]) -> u32 {
        let mix =
            |sum: u64, token: &u32| (sum ^ u64::from(*token)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = before
            .iter()
            .fold(salt.wrapping_mul(0xD6E8_FEB8_6659_FD93), mix);
        u32::try_from((mixed >> 40) % 3).unwrap()
    }

    proptest! {
        #[test]
        fn a_tree_never_changes_the_tokens(
            tree in trees(24, 3), take in 0_usize..9, salt in any::<u64>(),
        ) {
            let paths = super::super::tree::tests::paths(&tree);
            let rows = Rows::of(&tree).take(take);
            let mut asked = Vec::new();
            let found = verify_tree(&tree, &rows, |at| {
                asked.push(at);
                Ok::<_, ()>(target(salt, at.map_or(&[], |node| &paths[node])))
            });
            let found = found.unwrap();
            let mut plain = Vec::new();
            for _ in 0..found.tokens.len() {
                plain.push(target(salt, &plain));
            }
            prop_assert_eq!(&found.tokens, &plain);
            prop_assert_eq!(found.accepted + 1, plain.len());

            let followed = &plain[..found.accepted];
            let kept: Vec<_> = rows.row(found.row).iter().take(found.accepted).copied().collect();
            let held: Vec<_> = kept.iter().map(|node| tree.token(*node).unwrap()).collect();
            prop_assert_eq!(&held[..], followed);
            let above = std::iter::once(None).chain(kept.iter().copied().map(Some));
            prop_assert_eq!(&asked, &above.collect::<Vec<_>>());

            // As far as any path in the rows goes, and the lowest row that goes as far.
            let tokens = |row| rows.row(row).iter().map(|node| tree.token(*node).unwrap());
            let long = [&plain[..], &[target(salt, &plain)]].concat();
            let agree = |row| tokens(row).zip(&long).take_while(|(a, b)| a == *b).count();
            let best = (0..rows.len()).map(agree).max().unwrap();
            prop_assert_eq!(found.accepted, best);
            prop_assert_eq!(found.row, (0..rows.len()).find(|row| agree(*row) == best).unwrap());
            let goes_on = (0..rows.len()).any(|row| agree(row) == best && rows.row(row).len() > best);
            prop_assert_eq!(found.evaluated, best + usize::from(goes_on));
        }
    }

    #[test]
    fn a_failed_draw_ends_it() {
        let tree = DraftTree::chain([1, 2]);
        let failing = |at| if at == Some(0) { Err("no") } else { Ok(1) };
        let found = verify_tree(&tree, &Rows::of(&tree), failing).unwrap();
        assert_eq!((&found.tokens[..], found.accepted), (&[1][..], 0));
        assert_eq!((found.evaluated, found.row), (0, 0));
        let first = |at: Option<usize>| if at.is_none() { Err("no") } else { Ok(1) };
        assert_eq!(verify_tree(&tree, &Rows::of(&tree), first), Err("no"));
    }

    proptest! {
        /// What is drawn before a failure is what is drawn where the rest of the tree is not there.
        #[test]
        fn a_failure_cuts_the_walk(
            tree in trees(24, 3), take in 0_usize..9, salt in any::<u64>(), good in 1_usize..6,
        ) {
            let paths = super::super::tree::tests::paths(&tree);
            let rows = Rows::of(&tree).take(take);
            let token = |at: Option<usize>| target(salt, at.map_or(&[], |node| &paths[node]));
            let whole = verify_tree(&tree, &rows, |at| Ok::<_, ()>(token(at))).unwrap();
            let mut draws = 0;
            let cut = verify_tree(&tree, &rows, |at| {
                draws += 1;
                if draws > good { Err(()) } else { Ok(token(at)) }
            });
            let cut = cut.unwrap();
            if whole.tokens.len() <= good {
                prop_assert_eq!(cut, whole);
                return Ok(());
            }
            prop_assert_eq!(&cut.tokens[..], &whole.tokens[..good]);
            prop_assert_eq!((cut.accepted, cut.evaluated), (good - 1, good - 1));
            let held: Vec<_> = rows.row(cut.row).iter().take(good - 1).collect();
            let held: Vec<_> = held.into_iter().map(|node| tree.token(*node).unwrap()).collect();
            prop_assert_eq!(&held[..], &whole.tokens[..good - 1]);
        }
    }
}
