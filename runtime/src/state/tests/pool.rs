//! What a pool builds and what it refuses.

use crate::device::{Buffer, Device, DeviceError, Distant, ElementType, HostDevice};
use crate::ids::RequestId;
use crate::model::spec::{CheckpointSpec, FixedSpec, StateSpec};
use crate::state::layout::BankLayout;
use crate::state::{Bank, FixedRow, PoolError, SelectError, Slot, StateError, StatePool};
use genai_config_schema::{
    CheckpointAlignment, CheckpointForm, StateDecay, StateLayout, StateOperator,
};
use std::num::NonZeroUsize;

fn conv(checkpoints: Option<CheckpointSpec>) -> FixedSpec {
    FixedSpec {
        layer: 3,
        operator: StateOperator::CausalConv,
        layout: StateLayout::Bank,
        element: ElementType::F32,
        fresh: 0,
        input: "conv".to_owned(),
        output: "present".to_owned(),
        row_shape: vec![5, 3],
        key_heads: None,
        decay: StateDecay::PerHead,
        checkpoints,
    }
}

fn delta(key_heads: Option<usize>, checkpoints: Option<CheckpointSpec>) -> FixedSpec {
    let operator = StateOperator::GatedDeltaNet;
    FixedSpec {
        operator,
        row_shape: vec![4, 3, 2],
        key_heads,
        ..conv(checkpoints)
    }
}

fn series(form: CheckpointForm, alignment: CheckpointAlignment, width: usize) -> CheckpointSpec {
    CheckpointSpec {
        output: "series".to_owned(),
        count: 4,
        form,
        alignment,
        width,
    }
}

fn update(width: usize) -> Option<CheckpointSpec> {
    Some(series(
        CheckpointForm::Update,
        CheckpointAlignment::Left,
        width,
    ))
}

fn spec(fixed: FixedSpec) -> StateSpec {
    StateSpec {
        paged: None,
        fixed: vec![fixed],
        captures_in_mixed_steps: true,
    }
}

fn pool(slots: usize) -> StatePool {
    StatePool::new(&spec(conv(update(5))), slots, slots + 1, &HostDevice).unwrap()
}

fn fresh(request: u64, tokens: usize, captured: usize) -> FixedRow {
    let tokens = NonZeroUsize::new(tokens).unwrap();
    FixedRow {
        request: RequestId(request),
        handle: None,
        tokens,
        captured,
    }
}

fn refused(fixed: FixedSpec) -> String {
    StatePool::new(&spec(fixed), 2, 2, &HostDevice)
        .unwrap_err()
        .to_string()
}

#[test]
fn banks_and_staging_have_the_rows_of_the_plan() {
    let (slots, rows) = (3, 5);
    let spec = StateSpec {
        fixed: vec![conv(update(5)), delta(Some(2), update(4 + 4 + 12))],
        ..spec(conv(None))
    };
    let pool = StatePool::new(&spec, slots, rows, &HostDevice).unwrap();
    assert_eq!(pool.buffers[0].bank.shape(), [7, 5, 3]);
    assert_eq!(pool.buffers[1].bank.shape(), [7, 4, 3, 2]);
    let staging = |i: usize| pool.buffers[i].checkpoints.as_ref().unwrap().shape();
    assert_eq!(staging(0), [4, rows, 5]);
    assert_eq!(staging(1), [4, rows, 20]);
}

/// A history of two ids, beginning with `fresh`.
fn ids(element: ElementType, fresh: u32) -> FixedSpec {
    FixedSpec {
        operator: StateOperator::TokenHistory,
        row_shape: vec![2],
        element,
        fresh,
        ..conv(None)
    }
}

#[test]
fn fresh_histories_are_full_of_their_id() {
    let bytes = [5i64; 2].map(i64::to_ne_bytes).concat();
    for (element, expected) in [
        (ElementType::I64, bytes),
        (ElementType::I32, [5i32; 2].map(i32::to_ne_bytes).concat()),
    ] {
        let mut pool = StatePool::new(&spec(ids(element, 5)), 2, 2, &HostDevice).unwrap();
        assert!(pool.zero_rows_clean());
        assert_eq!(pool.buffers[0].bank.row_bytes(4).unwrap(), expected);
        // Zeros are not what a fresh history holds.
        pool.buffers[0].bank.row_bytes_mut(4).unwrap().fill(0);
        assert!(!pool.zero_rows_clean());
    }
    // Ids that cannot be held, or not be written.
    let message = refused(ids(ElementType::F32, 5));
    assert!(message.contains("fresh_token_id is 5"), "{message}");
    assert!(refused(ids(ElementType::I32, u32::MAX)).contains("fresh_token_id"));
    for (fresh, fits) in [(5, false), (0, true)] {
        let made = StatePool::new(&spec(ids(ElementType::I64, fresh)), 2, 2, &Distant);
        assert_eq!(made.is_ok(), fits, "{made:?}");
    }
}

#[test]
fn contradictions_of_a_specification_are_named() {
    let left = CheckpointAlignment::Left;
    let right = CheckpointAlignment::Right;
    let cases = [
        (conv(update(6)), "checkpoint width is 6, expected 5"),
        (
            delta(Some(2), update(19)),
            "checkpoint width is 19, expected 20",
        ),
        (
            delta(Some(3), update(20)),
            "key heads is 3, expected a divisor of 4",
        ),
        (
            delta(None, update(20)),
            "key heads is 0, expected a divisor of 4",
        ),
        (
            conv(Some(series(CheckpointForm::Update, right, 5))),
            "alignment is right, expected left",
        ),
        (
            conv(Some(series(CheckpointForm::State, left, 5))),
            "checkpoint width is 5, expected 15",
        ),
        (
            conv(Some(CheckpointSpec {
                count: 0,
                ..series(CheckpointForm::Update, left, 5)
            })),
            "checkpoint_count is 0, expected at least 1",
        ),
        (
            FixedSpec {
                row_shape: vec![5, 0],
                ..conv(None)
            },
            "row shape is [5, 0]",
        ),
        (
            FixedSpec {
                row_shape: vec![usize::MAX, 2],
                ..conv(None)
            },
            "row shape is",
        ),
        (
            FixedSpec {
                row_shape: vec![15],
                ..conv(update(5))
            },
            "expected [channels, history]",
        ),
        (
            FixedSpec {
                row_shape: vec![4, 6],
                ..delta(Some(2), update(20))
            },
            "expected [value heads",
        ),
    ];
    for (fixed, expected) in cases {
        let message = refused(fixed);
        assert!(
            message.contains(expected),
            "{message} should say {expected}"
        );
        assert!(message.contains("fixed state conv of layer 3"), "{message}");
    }
}

#[test]
fn impossible_extents_are_refused() {
    let new = |slots, rows| StatePool::new(&spec(conv(None)), slots, rows, &HostDevice);
    assert!(matches!(new(0, 0), Err(PoolError::Extent { slots: 0, .. })));
    assert!(matches!(
        new(4, 3),
        Err(PoolError::Extent {
            slots: 4,
            max_rows: 3
        })
    ));
    let many = usize::try_from(i32::MAX).unwrap();
    assert!(matches!(
        new(many, many),
        Err(PoolError::TooManySlots { .. })
    ));
}

#[derive(Debug)]
struct Full;

impl Device for Full {
    fn name(&self) -> &'static str {
        "full"
    }
    fn allocate(&self, element: ElementType, shape: &[usize]) -> Result<Buffer, DeviceError> {
        let (element, shape) = (element.name(), shape.to_vec());
        Err(DeviceError::OutOfMemory {
            bytes: 1,
            element,
            shape,
        })
    }
    fn host_visible(&self) -> bool {
        true
    }
}

#[test]
fn a_full_device_is_reported_with_the_tensor() {
    let error = StatePool::new(&spec(conv(None)), 1, 1, &Full).unwrap_err();
    assert!(matches!(error, PoolError::Device { .. }));
    assert!(
        error
            .to_string()
            .starts_with("fixed state conv: cannot allocate")
    );
}

#[test]
fn a_fresh_request_reads_the_zero_row_and_writes_its_own() {
    let mut pool = pool(3);
    let step = pool.reserve(&[fresh(1, 2, 0), fresh(2, 3, 2)]).unwrap();
    let binding = step.binding();
    assert_eq!(binding.read_rows, [6, 6]);
    assert_eq!(binding.write_rows, [0, 1]);
    assert_eq!(binding.capture_counts, [0, 2]);
    assert!(step.captures());
}

#[test]
fn dropping_a_reservation_frees_its_slots() {
    let mut pool = pool(2);
    let before = pool.entries().to_vec();
    let step = pool.reserve(&[fresh(1, 2, 0)]).unwrap();
    let reserved = Slot::Reserved {
        request: RequestId(1),
    };
    assert_eq!(step.pool().entries()[0].slot, reserved);
    drop(step);
    assert_eq!(pool.entries(), before);
    assert_eq!(pool.free_slots(), 2);
}

#[test]
fn what_cannot_be_reserved_changes_nothing() {
    let mut pool = pool(2);
    let before = pool.entries().to_vec();
    let cases = [
        (
            vec![fresh(1, 1, 0), fresh(2, 1, 0), fresh(3, 1, 0)],
            "3 new requests need a slot, 2 are free",
        ),
        (
            vec![fresh(1, 1, 0); 4],
            "a step of 4 rows, planned for at most 3",
        ),
        (
            vec![fresh(1, 1, 0), fresh(1, 1, 0)],
            "request 1 already owns a slot or a row",
        ),
        (
            vec![fresh(1, 5, 4)],
            "5 tokens with 4 captured, the checkpoint outputs hold 4",
        ),
        (
            vec![fresh(1, 2, 3)],
            "2 tokens with 3 captured, the checkpoint outputs hold 4",
        ),
    ];
    for (rows, expected) in cases {
        let message = pool.reserve(&rows).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
        assert_eq!(pool.entries(), before);
    }
}

#[test]
fn a_pool_without_checkpoints_refuses_to_capture() {
    let mut pool = StatePool::new(&spec(conv(None)), 1, 1, &HostDevice).unwrap();
    assert_eq!(pool.capture_capacity(), 0);
    let error = pool.reserve(&[fresh(1, 2, 1)]).unwrap_err();
    assert!(matches!(error, StateError::Capture { capacity: 0, .. }));
}

#[test]
fn the_kept_prefix_is_decided_once_and_must_exist() {
    let kept = |n| NonZeroUsize::new(n).unwrap();
    let mut pool = pool(2);
    let mut step = pool.reserve(&[fresh(1, 4, 3), fresh(2, 4, 0)]).unwrap();
    assert_eq!(
        step.commit_prefix(2, kept(1)),
        Err(StateError::UnknownRow { row: 2, rows: 2 })
    );
    let too_many = SelectError::KeptTooMany { kept: 5, tokens: 4 };
    assert_eq!(
        step.commit_prefix(0, kept(5)),
        Err(StateError::Select {
            row: 0,
            source: too_many
        })
    );
    let uncaptured = SelectError::NotCaptured {
        kept: 1,
        captured: 0,
    };
    assert_eq!(
        step.commit_prefix(1, kept(1)),
        Err(StateError::Select {
            row: 1,
            source: uncaptured
        })
    );
    assert_eq!(step.commit_prefix(0, kept(2)), Ok(()));
    assert_eq!(step.commit_prefix(0, kept(2)), Err(StateError::Twice(0)));
    assert_eq!(step.commit_prefix(1, kept(4)), Ok(()));
}

#[test]
#[cfg(debug_assertions)]
fn what_a_step_must_write_is_poisoned() {
    let mut pool = pool(2);
    let step = pool.reserve(&[fresh(1, 4, 3)]).unwrap();
    let buffers = &step.pool().buffers[0];
    assert!(
        buffers
            .bank
            .row_f32(0)
            .unwrap()
            .iter()
            .all(|value| value.is_nan())
    );
    assert!(
        buffers
            .bank
            .row_f32(4)
            .unwrap()
            .iter()
            .all(|value| *value == 0.0)
    );
    let staging = buffers.checkpoints.as_ref().unwrap().as_f32().unwrap();
    assert!(staging.iter().all(|value| value.is_nan()));
    assert_eq!(Bank::Zero.other().other(), Bank::Zero);
}

/// Operators refuse to read such a row and never write it; row 0 is another request's.
#[test]
fn a_row_outside_is_no_row() {
    let layout = BankLayout::new(3).unwrap();
    assert_eq!([0, 6].map(|row| layout.index(row)), [0, 6]);
    assert_eq!([7, usize::MAX].map(|row| layout.index(row)), [-1, -1]);
}
