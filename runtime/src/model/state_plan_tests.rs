//! Figures of a large hybrid model, worked out by hand.

use super::*;
use std::fs;

/// 64 layers, of which 48 keep a recurrent state of 48 value heads of 128 by 128 with 16 key heads, behind a
/// convolution of 10,240 channels and kernel 4, in bfloat16.
const HYBRID: &str = include_str!("../../../tests/fixtures/plans/hybrid-64-layers.json");

const LAYERS: u64 = 48;
const RECURRENT: u64 = LAYERS * 48 * 128 * 128 * 4;
const CONVOLUTION: u64 = LAYERS * 10_240 * 3;
const CAPSULE: u64 = LAYERS * (48 + 16 * 128 + 48 * 128) * 4;
const VALUES: u64 = LAYERS * 10_240;

fn plan_of(text: &str, window: u32, requests: usize) -> Result<StatePlan, LoadError> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("some.json");
    fs::write(&file, text).unwrap();
    StatePlan::read(&file, window, NonZeroUsize::new(requests))
}

#[test]
fn both_forms_of_a_large_hybrid_come_out_as_by_hand() {
    for (text, size) in [
        (HYBRID.to_owned(), 2),
        (HYBRID.replace("\"bfloat16\"", "\"float32\""), 4),
    ] {
        let plan = plan_of(&text, 8, 0).unwrap();
        let committed = RECURRENT + CONVOLUTION * size;
        let one = plan.per_request;
        assert_eq!(one.committed, committed);
        assert_eq!(one.state_checkpoints, 8 * committed);
        assert_eq!(one.update_checkpoints, 8 * (CAPSULE + VALUES * size));
        assert_eq!(one.banks, (committed * 33).div_ceil(16));
        assert!(
            one.update_checkpoints * 1000 <= one.state_checkpoints * 25,
            "{plan}"
        );
        let beyond = one.banks + one.update_checkpoints - committed;
        assert!(beyond <= 2 * committed, "{plan}");
        assert!((one.update_overhead() - beyond as f64 / committed as f64).abs() < 1e-9);
        assert!(one.state_overhead() > 9.0);

        let all = plan.all_requests;
        assert_eq!((plan.requests, all.committed), (16, 16 * committed));
        assert_eq!(all.banks, 33 * committed);
        assert_eq!(all.update_checkpoints, 16 * one.update_checkpoints);
        let cache = plan.cache.as_ref().unwrap();
        assert_eq!((cache.layers, cache.token), (16, 2 * 16 * 4 * 256 * size));
    }
}

/// Second bank, staging and all: at most twice the state of each request beyond the state. The zero row is a fixed cost, of
/// one state for any number of requests; from two requests on the bound holds with it.
#[test]
fn banks_and_staging_are_bounded_for_every_number_of_requests() {
    for text in [
        HYBRID.to_owned(),
        HYBRID.replace("\"bfloat16\"", "\"float32\""),
    ] {
        for requests in [1, 2, 4, 16] {
            let plan = plan_of(&text, 8, requests).unwrap();
            let (one, all) = (plan.per_request, plan.all_requests);
            assert_eq!(all.zero_row, one.committed);
            let beyond = all.banks + all.update_checkpoints - all.committed;
            assert!(beyond - all.zero_row <= 2 * all.committed, "{plan}");
            assert!(requests == 1 || beyond <= 2 * all.committed, "{plan}");
            assert!(plan.to_string().contains("is the zero row"), "{plan}");
        }
    }
}

#[test]
fn window_and_requests_count() {
    let (eight, three) = (
        plan_of(HYBRID, 8, 1).unwrap(),
        plan_of(HYBRID, 3, 5).unwrap(),
    );
    assert_eq!(eight.per_request.committed, three.per_request.committed);
    assert_eq!(eight.per_request.banks, 3 * eight.per_request.committed);
    assert_eq!(three.all_requests.banks, 11 * three.per_request.committed);
    assert_eq!(
        eight.per_request.update_checkpoints,
        7 * 8 * (CAPSULE + 2 * VALUES),
        "branches of drafts stage no more than a state"
    );
    assert_eq!(
        three.all_requests.update_checkpoints,
        3 * 8 * (CAPSULE + 2 * VALUES),
        "staging for branches of drafts"
    );
    assert_eq!(
        three.all_requests.state_checkpoints,
        15 * three.per_request.committed
    );
    let shown = three.to_string();
    for part in [
        "144.0 MiB",
        "update:3",
        "5 requests",
        "Gated DeltaNet, 48 layers of float32 [48, 128, 128]",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[test]
fn what_a_plan_lacks_is_named() {
    let refused = |text: &str, window| plan_of(text, window, 0).unwrap_err().to_string();
    for window in [0, 9] {
        assert!(refused(HYBRID, window).contains(&format!("window is {window}")));
    }
    let message = refused(&HYBRID.replace("\"row_shape\": [10240, 3],", ""), 8);
    assert!(
        message.contains("some.json") && message.contains("state_groups[1].row_shape"),
        "{message}"
    );
    let message = refused(
        &HYBRID.replacen("\"element_type\": \"bfloat16\",", "", 1),
        8,
    );
    assert!(
        message.contains("state_groups[0].element_type"),
        "{message}"
    );
    let message = refused(&HYBRID.replace("[48, 128, 128]", "[47, 128, 128]"), 8);
    assert!(
        message.contains("some.json") && message.contains("16 key heads"),
        "{message}"
    );
    let message = refused(&HYBRID.replace("10240", "9223372036854775807"), 8);
    assert!(
        message.ends_with(
            "some.json`: model.decoder.state_groups[1]: the state is larger than 2^64 bytes"
        ),
        "{message}"
    );
    let message = refused("{", 8);
    assert!(message.contains("some.json"), "{message}");
}
