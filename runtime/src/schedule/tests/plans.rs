//! Single plans.

use crate::ids::RequestId;
use crate::kv::Blocks;
use crate::schedule::plan::Deferred;
use crate::schedule::{Deferral, Held, Limits, RequestView, RowPlan, StepPlan, plan};

/// Blocks of a model without a head.
pub(super) const fn cache(decoder: usize) -> Blocks {
    Blocks { decoder, head: 0 }
}

pub(super) const LIMITS: Limits = Limits {
    max_batch_size: 4,
    step_rows: 4,
    max_scheduled_tokens: 16,
    max_chunk: 8,
    max_drafts: 7,
    drafts_beside_prefill: true,
    slots: 4,
    blocks: cache(16),
    free_blocks: 16,
    block_size: 4,
    max_overtakes: 2,
    held: Held {
        slots: 0,
        blocks: cache(0),
    },
};

pub(super) fn waiting(request: u64, prompt: usize) -> RequestView {
    RequestView {
        request: RequestId(request),
        resident: false,
        past: 0,
        pending: prompt,
        ceiling: prompt + 4,
        drafts: 0,
        branches: Vec::new(),
        waited: 0,
        overtaken: 0,
        brings: None,
    }
}

pub(super) fn decoding(request: u64, past: usize) -> RequestView {
    RequestView {
        resident: true,
        past,
        pending: 1,
        ceiling: past + 8,
        ..waiting(request, 1)
    }
}

pub(super) fn prefilling(request: u64, past: usize, pending: usize) -> RequestView {
    let ceiling = past + pending + 1;
    RequestView {
        resident: true,
        past,
        pending,
        ceiling,
        ..waiting(request, 1)
    }
}

/// `(request, tokens, drafts)` per row.
fn shape(plan: &StepPlan) -> Vec<(u64, usize, usize)> {
    plan.rows
        .iter()
        .map(|row| (row.request.0, row.tokens.len(), row.drafts))
        .collect()
}

fn deferred(plan: &StepPlan) -> Vec<(u64, Deferral, usize)> {
    let entry = |d: &Deferred| (d.request.0, d.reason, d.overtaken);
    plan.deferred.iter().map(entry).collect()
}

#[test]
fn nothing_to_do_is_an_empty_plan() {
    assert_eq!(plan(&[], &LIMITS), StepPlan::default());
}

#[test]
fn rows_say_what_they_are() {
    let plan = plan(
        &[decoding(1, 6), prefilling(2, 4, 9), waiting(3, 3)],
        &LIMITS,
    );
    let row = |request, tokens, is_prefill, wants_logits, new| RowPlan {
        request: RequestId(request),
        tokens,
        drafts: 0,
        branches: Vec::new(),
        is_prefill,
        wants_logits,
        new,
    };
    assert_eq!(
        plan.rows,
        [
            row(1, 6..7, false, true, false),
            row(2, 4..12, true, false, false),
            row(3, 0..3, true, true, true),
        ]
    );
    assert_eq!((plan.num_tokens(), plan.rows[1].past()), (12, 4));
    let step = plan.rows[2].step_row(5);
    assert_eq!(
        (step.tokens, step.drafts, step.head_tokens, step.new),
        (3, 0, 5, true)
    );
}

#[test]
fn decoding_rows_come_first_whatever_the_order_of_arrival() {
    let limits = Limits {
        blocks: cache(1000),
        ..LIMITS
    };
    let plan = plan(
        &[waiting(1, 30), prefilling(2, 4, 30), decoding(3, 5)],
        &limits,
    );
    assert_eq!(shape(&plan), [(3, 1, 0), (2, 8, 0), (1, 7, 0)]);
}

#[test]
fn a_quarter_of_the_tokens_is_kept_for_prefill() {
    let limits = Limits {
        max_batch_size: 64,
        slots: 64,
        blocks: cache(1000),
        ..LIMITS
    };
    let mut views: Vec<RequestView> = (0..20).map(|request| decoding(request, 5)).collect();
    views.push(prefilling(99, 4, 30));
    let plan = plan(&views, &limits);
    assert_eq!(plan.rows.len(), 13);
    assert_eq!(shape(&plan)[12], (99, 4, 0));
    assert_eq!(plan.num_tokens(), 16);
}

#[test]
fn one_row_is_kept_for_prefill() {
    let mut views: Vec<RequestView> = (0..6).map(|request| decoding(request, 5)).collect();
    views.push(prefilling(99, 4, 30));
    let plan = plan(
        &views,
        &Limits {
            slots: 8,
            blocks: cache(1000),
            ..LIMITS
        },
    );
    assert_eq!(shape(&plan), [(0, 1, 0), (1, 1, 0), (2, 1, 0), (99, 8, 0)]);
}

#[test]
fn the_decoding_row_that_waited_longest_goes_first() {
    let mut views: Vec<RequestView> = (0..6).map(|request| decoding(request, 5)).collect();
    views[5].waited = 3;
    views[2].waited = 1;
    let plan = plan(
        &views,
        &Limits {
            slots: 8,
            blocks: cache(1000),
            ..LIMITS
        },
    );
    assert_eq!(shape(&plan), [(5, 1, 0), (2, 1, 0), (0, 1, 0), (1, 1, 0)]);
}

#[test]
fn with_room_for_one_row_whoever_waited_longest_runs() {
    for limits in [
        Limits {
            max_batch_size: 1,
            ..LIMITS
        },
        Limits {
            max_scheduled_tokens: 1,
            ..LIMITS
        },
    ] {
        let (mut decode, mut prefill) = (decoding(1, 5), prefilling(2, 4, 30));
        assert_eq!(
            plan(&[decode.clone(), prefill.clone()], &limits).rows[0].request,
            RequestId(1)
        );
        prefill.waited = 1;
        assert_eq!(
            plan(&[decode.clone(), prefill.clone()], &limits).rows[0].request,
            RequestId(2)
        );
        decode.waited = 1;
        assert_eq!(
            plan(&[decode, prefill], &limits).rows[0].request,
            RequestId(1)
        );
    }
}

#[test]
fn drafts_use_what_rows_leave() {
    let mut views = vec![decoding(1, 5), decoding(2, 5), waiting(3, 30)];
    views[0].drafts = 5;
    views[1].drafts = 5;
    let limits = Limits {
        max_scheduled_tokens: 12,
        blocks: cache(1000),
        ..LIMITS
    };
    let plan_of = |views: &[RequestView], limits: &Limits| plan(views, limits);
    // Two tokens for the decoding rows and a quarter for the prefill leave seven.
    assert_eq!(
        shape(&plan_of(&views, &limits)),
        [(1, 1, 5), (2, 1, 2), (3, 3, 0)]
    );
    let limits = Limits {
        max_drafts: 1,
        ..limits
    };
    assert_eq!(
        shape(&plan_of(&views, &limits)),
        [(1, 1, 1), (2, 1, 1), (3, 8, 0)]
    );
    let limits = Limits {
        max_drafts: 7,
        drafts_beside_prefill: false,
        ..limits
    };
    assert_eq!(
        shape(&plan_of(&views, &limits)),
        [(1, 1, 0), (2, 1, 0), (3, 8, 0)]
    );
    assert_eq!(
        shape(&plan_of(&views[..2], &limits)),
        [(1, 1, 5), (2, 1, 5)]
    );
}

#[test]
fn drafts_end_with_the_request() {
    let mut view = decoding(1, 5);
    view.drafts = 5;
    for (ceiling, drafts) in [(20, 5), (10, 3), (8, 1), (7, 0), (6, 0)] {
        view.ceiling = ceiling;
        assert_eq!(
            shape(&plan(std::slice::from_ref(&view), &LIMITS)),
            [(1, 1, drafts)]
        );
    }
}

#[test]
fn admission_needs_a_slot() {
    let limits = Limits { slots: 2, ..LIMITS };
    let plan = plan(&[decoding(1, 5), waiting(2, 3), waiting(3, 3)], &limits);
    assert_eq!(shape(&plan), [(1, 1, 0), (2, 3, 0)]);
    assert_eq!(deferred(&plan), [(3, Deferral::Slots, 0)]);
}

#[test]
fn admission_counts_every_resident_at_its_ceiling() {
    // The resident holds 2 blocks now and 10 at its ceiling; 16 are there.
    let resident = RequestView {
        ceiling: 40,
        ..decoding(1, 5)
    };
    let fits = RequestView {
        ceiling: 24,
        ..waiting(2, 3)
    };
    let plan_of = |view| plan(&[resident.clone(), view], &LIMITS);
    assert_eq!(shape(&plan_of(fits.clone())), [(1, 1, 0), (2, 3, 0)]);
    let too_much = RequestView {
        ceiling: 25,
        ..fits
    };
    assert_eq!(deferred(&plan_of(too_much)), [(2, Deferral::Blocks, 0)]);
}

#[test]
fn a_blocked_prompt_does_not_hide_later_work_until_its_turn_comes() {
    let resident = RequestView {
        ceiling: 40,
        ..decoding(1, 5)
    };
    let mut big = waiting(2, 30);
    let later = waiting(3, 4);
    let views = [resident.clone(), big.clone(), later.clone()];
    let first = plan(&views, &LIMITS);
    assert_eq!(shape(&first), [(1, 1, 0), (3, 4, 0)]);
    assert_eq!(deferred(&first), [(2, Deferral::Blocks, 1)]);
    big.overtaken = LIMITS.max_overtakes;
    let closed = plan(&[resident, big, later], &LIMITS);
    assert_eq!(shape(&closed), [(1, 1, 0)]);
    assert_eq!(
        deferred(&closed),
        [(2, Deferral::Blocks, 0), (3, Deferral::Turn, 0)]
    );
}

#[test]
fn a_prompt_beyond_the_whole_cache_is_unserviceable_and_hides_nobody() {
    let plan = plan(&[waiting(1, 61), waiting(2, 3)], &LIMITS);
    assert_eq!(plan.unserviceable, [RequestId(1)]);
    assert_eq!(shape(&plan), [(2, 3, 0)]);
    assert_eq!(LIMITS.most_tokens(), 64);
}

#[test]
fn admissions_wait_for_rows_and_tokens() {
    let views: Vec<RequestView> = (0..3).map(|request| waiting(request, 8)).collect();
    let plan = plan(&views, &LIMITS);
    assert_eq!(shape(&plan), [(0, 8, 0), (1, 8, 0)]);
    assert_eq!(deferred(&plan), [(2, Deferral::Step, 0)]);
}

#[test]
fn a_model_without_a_cache_is_limited_by_slots_only() {
    let limits = Limits {
        blocks: cache(0),
        ..LIMITS
    };
    let plan = plan(&[waiting(1, 1000)], &limits);
    assert_eq!(shape(&plan), [(1, 8, 0)]);
    assert_eq!(limits.most_tokens(), usize::MAX);
}

#[test]
fn kept_states_take_slots_and_blocks() {
    let held = |slots, blocks| Limits {
        held: Held {
            slots,
            blocks: cache(blocks),
        },
        ..LIMITS
    };
    // Needs 3 blocks of 16.
    let views = [waiting(1, 6)];
    assert_eq!(plan(&views, &held(3, 13)).rows.len(), 1);
    for (limits, reason) in [
        (held(4, 13), Deferral::Slots),
        (held(3, 14), Deferral::Blocks),
    ] {
        let plan = plan(&views, &limits);
        assert_eq!((plan.rows.len(), plan.deferred[0].reason), (0, reason));
        assert_eq!(plan.unserviceable, []);
    }
}

#[test]
fn a_continuation_brings_what_it_takes_over() {
    let limits = Limits {
        held: Held {
            slots: 4,
            blocks: cache(15),
        },
        ..LIMITS
    };
    let continues = |past, pending, brings| RequestView {
        past,
        ceiling: past + pending + 1,
        brings: Some(cache(brings)),
        ..waiting(1, pending)
    };
    // One block more than the 3 it brings, then two more.
    let plan_of = |view| plan(&[view], &limits);
    let plan = plan_of(continues(10, 5, 3));
    assert_eq!(shape(&plan), [(1, 5, 0)]);
    assert_eq!(plan.rows[0].tokens, 10..15);
    assert!(plan.rows[0].new && plan.rows[0].wants_logits);
    assert_eq!(
        plan_of(continues(10, 9, 3)).deferred[0].reason,
        Deferral::Blocks
    );
    // A single token after the kept ones is run like a prompt.
    assert_eq!(shape(&plan_of(continues(10, 1, 3))), [(1, 1, 0)]);
}

/// A head that is behind its decoder holds blocks that its decoder shares, and the other way round: each cache counts.
#[test]
fn the_fuller_of_two_caches_decides() {
    let limits = |decoder, head| Limits {
        blocks: Blocks {
            decoder: 16,
            head: 16,
        },
        held: Held {
            slots: 1,
            blocks: Blocks { decoder, head },
        },
        ..LIMITS
    };
    // 20 tokens and 4 to come: 6 blocks of either cache.
    for (decoder, head, fits) in [(10, 10, true), (4, 11, false), (11, 4, false)] {
        let plan = plan(&[waiting(1, 20)], &limits(decoder, head));
        assert_eq!(plan.deferred.is_empty(), fits, "{decoder} {head}");
    }
    let continues = |decoder, head| RequestView {
        past: 8,
        brings: Some(Blocks { decoder, head }),
        ..waiting(1, 12)
    };
    let full = limits(13, 13);
    assert_eq!(plan(&[continues(2, 2)], &full).deferred, []);
    for (decoder, head) in [(2, 1), (1, 2)] {
        let plan = plan(&[continues(decoder, head)], &full);
        assert_eq!(
            plan.deferred[0].reason,
            Deferral::Blocks,
            "{decoder} {head}"
        );
    }
}
