//! Branches: what a plan gives them, and what it does not.

use super::plans::{LIMITS, cache, decoding, prefilling, waiting};
use crate::schedule::{Limits, RequestView, StepPlan, plan};

/// A decoding request that wants so many drafts and branches.
fn tree(request: u64, drafts: usize, branches: &[usize]) -> RequestView {
    RequestView {
        drafts,
        branches: branches.to_vec(),
        ceiling: 30,
        ..decoding(request, 5)
    }
}

const WIDE: Limits = Limits {
    step_rows: 8,
    max_scheduled_tokens: 40,
    ..LIMITS
};

fn granted(plan: &StepPlan) -> Vec<(u64, usize, &[usize])> {
    let rows = plan.rows.iter();
    rows.map(|row| (row.request.0, row.drafts, row.branches.as_slice()))
        .collect()
}

#[test]
fn a_branch_costs_a_row_and_its_tokens() {
    let views = [tree(1, 3, &[2, 1, 1]), tree(2, 2, &[4])];
    let given = plan(&views, &WIDE);
    assert_eq!(granted(&given), [(1, 3, &[2, 1, 1][..]), (2, 2, &[4])]);
    assert_eq!((given.batch_rows(), given.num_tokens()), (6, 4 + 7 + 3 + 5));
    let step = given.rows[0].step_row(0);
    assert_eq!((step.tokens, step.branches), (4, vec![3, 2, 2]));

    let rows = Limits {
        step_rows: 4,
        ..WIDE
    };
    assert_eq!(
        granted(&plan(&views, &rows)),
        [(1, 3, &[2, 1][..]), (2, 2, &[])]
    );
    // 7 tokens of the rows, 3, 2 and 2 of the first one's branches, 5 of the second's.
    for (tokens, first, second) in [(19, 3, 1), (18, 3, 0), (13, 2, 0), (12, 2, 0), (9, 0, 0)] {
        let limits = Limits {
            max_scheduled_tokens: tokens,
            ..WIDE
        };
        let given = plan(&views, &limits);
        let counts: Vec<usize> = given.rows.iter().map(|row| row.branches.len()).collect();
        assert_eq!(counts, [first, second], "{tokens} tokens");
    }
}

#[test]
fn no_row_and_no_draft_makes_room_for_a_branch() {
    let views = [
        tree(1, 7, &[1]),
        decoding(2, 5),
        prefilling(3, 4, 30),
        waiting(4, 3),
    ];
    let limits = Limits {
        blocks: cache(1000),
        free_blocks: 1000,
        ..WIDE
    };
    // 8 + 1 + 8 + 3 tokens in 4 rows.
    for (tokens, branches) in [(22, 1), (21, 0), (20, 0)] {
        let limits = Limits {
            max_scheduled_tokens: tokens,
            ..limits
        };
        let given = plan(&views, &limits);
        let shape: Vec<_> = given
            .rows
            .iter()
            .map(|row| (row.tokens.len(), row.drafts))
            .collect();
        assert_eq!(shape, [(1, 7), (1, 0), (8, 0), (3, 0)], "{tokens} tokens");
        assert_eq!(given.rows[0].branches.len(), branches, "{tokens} tokens");
    }
    let alone = Limits {
        drafts_beside_prefill: false,
        ..limits
    };
    assert_eq!(plan(&views, &alone).rows[0].branches, [0; 0]);
    assert_eq!(plan(&views[..2], &alone).rows[0].branches, [1]);
}

#[test]
fn branches_take_blocks_that_are_free_now() {
    // 5 tokens are 2 blocks of 4. The row itself grows by 1 block, a branch copies 1 and takes 1 more with 4 drafts.
    let views = [tree(1, 4, &[2, 4, 4])];
    for (free, branches) in [(6, 3), (5, 2), (4, 2), (3, 1), (2, 1), (1, 0), (0, 0)] {
        let limits = Limits {
            free_blocks: free,
            ..WIDE
        };
        assert_eq!(
            plan(&views, &limits).rows[0].branches.len(),
            branches,
            "{free} free"
        );
    }
    let none = Limits {
        blocks: cache(0),
        free_blocks: 0,
        ..WIDE
    };
    assert_eq!(plan(&views, &none).rows[0].branches, [2, 4, 4]);
}

#[test]
fn branches_end_with_the_request_and_the_capture() {
    let mut view = tree(1, 3, &[5, 1, 5]);
    for (ceiling, branches) in [
        (20, &[5, 1, 5][..]),
        (10, &[3, 1, 3]),
        (8, &[1, 1, 1]),
        (7, &[]),
    ] {
        view.ceiling = ceiling;
        assert_eq!(
            plan(std::slice::from_ref(&view), &WIDE).rows[0].branches,
            branches
        );
    }
    view.ceiling = 20;
    let shallow = Limits {
        max_drafts: 2,
        ..WIDE
    };
    assert_eq!(plan(&[view], &shallow).rows[0].branches, [2, 1, 2]);
}
