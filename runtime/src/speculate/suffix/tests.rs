use super::*;
use proptest::prelude::*;

fn suffixes(tokens: &[u32]) -> Suffixes {
    let mut suffixes = Suffixes::default();
    for token in tokens {
        suffixes.push(*token);
    }
    suffixes
}

/// Ends of the occurrences of an ending in the text that have a token after them in it.
fn occurrences(text: &[u32], ending: &[u32]) -> Vec<usize> {
    (ending.len()..text.len())
        .filter(|end| text[..*end].ends_with(ending))
        .collect()
}

/// Longest ending of the text followed by `fresh`, and where its latest continuation stands, by looking everywhere.
fn naive_find(text: &[u32], fresh: &[u32]) -> Option<(usize, usize)> {
    let all = [text, fresh].concat();
    (SHORTEST..=LONGEST.min(all.len()))
        .rev()
        .find_map(|length| {
            let found = occurrences(text, &all[all.len() - length..]);
            Some((length, *found.last()?))
        })
}

fn naive_propose(text: &[u32], fresh: &[u32], most: usize) -> Vec<u32> {
    let Some((_, next)) = naive_find(text, fresh) else {
        return Vec::new();
    };
    let mut all = [text, fresh].concat();
    let known = all.len();
    for index in next..next + most {
        all.push(all[index]);
    }
    all.split_off(known)
}

/// Different tokens after an ending in the text: how often each, and where last.
fn naive_continuations(text: &[u32], ending: &[u32]) -> Vec<(u32, u32, u32)> {
    let ends = occurrences(text, ending);
    let mut tokens: Vec<_> = ends.iter().map(|end| text[*end]).collect();
    tokens.sort_unstable();
    tokens.dedup();
    let of = |token: u32| {
        let its = ends.iter().filter(|end| text[**end] == token);
        let last = its.clone().next_back().unwrap() + 1;
        (
            token,
            u32::try_from(its.count()).unwrap(),
            u32::try_from(last).unwrap(),
        )
    };
    tokens.into_iter().map(of).collect()
}

/// Texts over few tokens, some of them periodic, and texts that repeat pieces longer than the longest ending.
fn texts() -> impl Strategy<Value = Vec<u32>> {
    let free = proptest::collection::vec(0_u32..4, 0..90);
    let period = (proptest::collection::vec(0_u32..4, 1..6), 0_usize..90)
        .prop_map(|(period, length)| period.into_iter().cycle().take(length).collect());
    let piece = (0_usize..20, 20_usize..60);
    let pieces = (
        proptest::collection::vec(0_u32..4, 60),
        proptest::collection::vec(piece, 2..6),
    )
        .prop_map(|(base, pieces): (Vec<u32>, _)| {
            let piece =
                |(start, length): (usize, usize)| base[start..].iter().copied().take(length);
            pieces.into_iter().flat_map(piece).collect()
        });
    let ends_in_period = (free.clone(), period).prop_map(|(a, b): (_, Vec<u32>)| [a, b].concat());
    prop_oneof![free, ends_in_period, pieces]
}

proptest! {
    #[test]
    fn drafts_are_those_of_a_scan(
        text in texts(), fresh in proptest::collection::vec(0_u32..4, 0..8), most in 0_usize..12,
    ) {
        let suffixes = suffixes(&text);
        let found = suffixes.find(&fresh).map(|found| (found.length, found.next));
        prop_assert_eq!(found, naive_find(&text, &fresh));
        prop_assert_eq!(suffixes.propose(&fresh, most), naive_propose(&text, &fresh, most));
        let all = [&text[..], &fresh].concat();
        let elsewhere = suffixes.find_from_nothing(&all).map(|found| (found.length, found.next));
        prop_assert_eq!(elsewhere, naive_find(&text, &fresh));
    }

    #[test]
    fn continuations_are_counted(text in texts(), fresh in proptest::collection::vec(0_u32..4, 0..8)) {
        let suffixes = suffixes(&text);
        let all = [&text[..], &fresh].concat();
        let place = suffixes.automaton.follow(suffixes.automaton.end(), &fresh);
        for (place, _) in suffixes.endings(place) {
            let mut found: Vec<_> = suffixes
                .automaton
                .continuations(place)
                .map(|next| (next.token, next.count, next.latest))
                .collect();
            found.sort_unstable();
            prop_assert_eq!(found, naive_continuations(&text, &all[all.len() - place.length..]));
        }
    }

    #[test]
    fn a_tree_starts_with_what_followed_most_often(
        text in texts(), fresh in proptest::collection::vec(0_u32..4, 0..8),
        depth in 0_usize..6, nodes in 0_usize..12, rows in 0_usize..6,
    ) {
        let suffixes = suffixes(&text);
        let limits = TreeLimits { nodes, depth, rows };
        let tree = suffixes.propose_tree(&fresh, limits);
        prop_assert!(tree.len() <= nodes && crate::speculate::Rows::of(&tree).len() <= rows.max(1));
        prop_assert!(crate::speculate::tree::tests::paths(&tree).iter().all(|path| path.len() <= depth));
        let all = [&text[..], &fresh].concat();
        prop_assert_eq!(&tree, &suffixes.tree_from_nothing(&all, limits));
        let Some((length, _)) = naive_find(&text, &fresh) else {
            prop_assert!(tree.is_empty());
            return Ok(());
        };
        if depth > 0 && nodes > 0 && rows > 0 {
            let next = naive_continuations(&text, &all[all.len() - length..]);
            let best = next.into_iter().max_by_key(|(_, count, latest)| (*count, *latest));
            prop_assert_eq!(tree.nodes().next().unwrap().1, best.unwrap().0);
        }
        for path in crate::speculate::tree::tests::paths(&tree) {
            let before = [&all[..], &path].concat();
            let ending = &before[before.len() - SHORTEST - 1..];
            prop_assert!(text.windows(ending.len()).any(|window| window == ending));
        }
    }
}

#[test]
fn the_longest_then_the_latest_match_wins() {
    assert_eq!(suffixes(&[1, 2, 3, 4, 9, 1, 2, 3]).propose(&[], 2), [4, 9]);
    assert_eq!(suffixes(&[1, 2, 7, 1, 2, 8, 1, 2]).propose(&[], 1), [8]);
    assert_eq!(
        suffixes(&[5, 1, 2, 7, 1, 2, 8, 5, 1, 2]).propose(&[], 1),
        [7]
    );
    assert_eq!(
        suffixes(&[1, 2, 7, 8]).propose(&[1, 2], 9),
        [7, 8, 1, 2, 7, 8, 1, 2, 7]
    );
    assert!(suffixes(&[1, 2, 3, 1]).propose(&[], 4).is_empty());
    assert!(suffixes(&[]).propose(&[], 4).is_empty());
}

#[test]
fn runners_up_are_in_the_tree() {
    let text = [1, 2, 7, 5, 1, 2, 7, 6, 1, 2, 8, 1, 2];
    let tree = suffixes(&text).propose_tree(
        &[],
        TreeLimits {
            nodes: 4,
            depth: 1,
            rows: 4,
        },
    );
    assert_eq!(tree.nodes().collect::<Vec<_>>(), [(None, 7), (None, 8)]);
}

#[test]
fn memory_is_bounded_and_the_count_goes_on() {
    let mut suffixes = Suffixes::bounded(64);
    let mut most = 0;
    for index in 0..1000 {
        suffixes.push(index % 7);
        assert!(suffixes.automaton.tokens().len() <= 64);
        most = most.max(suffixes.bytes());
    }
    assert_eq!(suffixes.len(), 1000);
    assert!(most < 64 * 400, "{most}");
    assert_eq!(suffixes.propose(&[], 3), [1000 % 7, 1001 % 7, 1002 % 7]);
}

#[test]
fn a_remembered_token_costs_little() {
    // A text as varied as any: every state that can be split is split now and then.
    let mut state = 1_u32;
    let mut suffixes = Suffixes::default();
    for _ in 0..50_000 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        suffixes.push((state >> 24) % 61);
    }
    let bytes = suffixes.bytes() / suffixes.len();
    assert!(bytes < 120, "{bytes} bytes for each token");
}
