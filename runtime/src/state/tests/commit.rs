//! Steps whose partial rows graphs commit, beside the same steps of the host: both forms, every length and every kept
//! prefix, rows in any order.

use crate::device::{Device, Distant, HostDevice};
use crate::exec::commit::tests::commit_graphs;
use crate::ids::RequestId;
use crate::model::spec::{FixedSpec, StateSpec};
use crate::model::test_specs::{by_rows, conv, delta, per_key, series};
use crate::state::layout::SeriesLayout;
use crate::state::{Bank, Entry, FixedRow, PoolError, Slot, SlotHandle, StatePool};
use crate::txn::Participant;
use genai_config_schema::{CheckpointAlignment, CheckpointForm, StateLayout};
use std::num::NonZeroUsize;

const SLOTS: usize = 5;

/// One row of a step: whose slot, tokens run, tokens kept.
#[derive(Clone, Copy, Debug)]
struct Row {
    slot: usize,
    tokens: usize,
    kept: usize,
}

/// A value in (-1, 1) for every triple.
fn noise(a: usize, b: usize, c: usize) -> f32 {
    let mixed = (a * 31 + b) * 8191 + c + 1;
    let mixed = (mixed as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 40;
    mixed as f32 / 8_388_608.0 - 1.0
}

/// A pool of one tensor with a resident in every slot.
struct World {
    spec: FixedSpec,
    /// How the operator aligns what it captures.
    written: CheckpointAlignment,
    pool: StatePool,
}

impl World {
    fn new(spec: FixedSpec, graph: Option<&str>) -> Self {
        let graphs = graph.map(|name| commit_graphs(std::slice::from_ref(&spec), &[name]));
        let device: &dyn Device = if graph.is_some() {
            &Distant
        } else {
            &HostDevice
        };
        let state = state(spec.clone());
        let pool = StatePool::with_commit(&state, SLOTS, SLOTS, (device, graphs)).unwrap();
        let written = spec.checkpoints.as_ref().unwrap().alignment;
        Self {
            spec,
            written,
            pool,
        }
    }

    /// A resident in every slot, by turns in one bank and the other, of numbers that are known.
    fn reset(&mut self) {
        for (index, entry) in self.pool.entries.iter_mut().enumerate() {
            let slot = Slot::Committed {
                request: RequestId(index as u64),
                active: active_before(index),
                tokens: 7,
                version: 1,
            };
            *entry = Entry {
                slot,
                generation: 0,
            };
        }
        let bank = self.pool.buffers[0].bank.as_f32_mut().unwrap();
        for (index, value) in bank.iter_mut().enumerate() {
            *value = noise(1, 1, index);
        }
    }

    /// Runs and publishes a step from the same beginning as every other. Until it is published, what is committed is not
    /// touched. Returns the bank after it, a list per row.
    fn step(&mut self, rows: &[Row]) -> Vec<Vec<f32>> {
        self.reset();
        let Self {
            spec,
            written,
            pool,
        } = self;
        let id = pool.id;
        let fixed = |row: &Row| FixedRow {
            request: RequestId(row.slot as u64),
            handle: Some(SlotHandle {
                pool: id,
                index: row.slot,
                generation: 0,
            }),
            tokens: NonZeroUsize::new(row.tokens).unwrap(),
            captured: row.tokens - 1,
        };
        let fixed: Vec<FixedRow> = rows.iter().map(fixed).collect();
        let mut step = pool.reserve(&fixed).unwrap();
        let writes = step.binding().write_rows;
        for (index, (row, write)) in rows.iter().zip(writes).enumerate() {
            let buffers = &mut step.buffers()[0];
            let elements = buffers.bank.row_elements();
            let last: Vec<f32> = (0..elements).map(|at| noise(2, row.slot, at)).collect();
            let write = usize::try_from(write).unwrap();
            buffers.bank.write_row_f32(write, &last).unwrap();
            let staging = buffers.checkpoints.as_mut().unwrap().as_f32_mut().unwrap();
            for t in 0..row.tokens - 1 {
                capture(spec, *written, (rows.len(), index), (row, t), staging);
            }
        }
        for (index, row) in rows.iter().enumerate() {
            let kept = NonZeroUsize::new(row.kept).unwrap();
            step.commit_prefix(index, kept).unwrap();
        }
        step.validate().unwrap();
        step.prepare().unwrap();
        for slot in 0..SLOTS {
            let row = step.pool().layout.row(active_before(slot), slot);
            let bank = &step.buffers()[0].bank;
            assert_eq!(bank.row_f32(row).unwrap(), first(bank.row_elements(), row));
        }
        step.publish_alone();
        pool.settle();
        let bank = &pool.buffers[0].bank;
        let rows = bank.as_f32().unwrap().chunks(bank.row_elements());
        rows.map(<[f32]>::to_vec).collect()
    }

    /// Bank row of the committed state of a slot.
    fn committed(&self, slot: usize) -> usize {
        let Slot::Committed { active, .. } = self.pool.entries[slot].slot else {
            panic!("slot {slot} holds nothing")
        };
        self.pool.layout.row(active, slot)
    }

    /// After a step, every bank row is what it was, but for those that the operators wrote and those that are committed.
    fn check_the_others(&self, rows: &[Row], bank: &[Vec<f32>]) {
        let layout = self.pool.layout;
        let of_row = |row: &Row| {
            let written = layout.row(active_before(row.slot).other(), row.slot);
            [written, self.committed(row.slot)]
        };
        let written: Vec<usize> = rows.iter().flat_map(of_row).collect();
        for (index, found) in bank.iter().enumerate() {
            assert!(found.iter().all(|x| !x.is_nan()), "{rows:?}: row {index}");
            let expected = first(found.len(), index);
            let same = *found == expected;
            assert!(same || written.contains(&index), "{rows:?}: row {index}");
        }
    }
}

/// What a bank row of so many elements begins with.
fn first(elements: usize, row: usize) -> Vec<f32> {
    let all = row * elements..(row + 1) * elements;
    all.map(|index| noise(1, 1, index)).collect()
}

/// The bank that is active when a step begins.
fn active_before(slot: usize) -> Bank {
    if slot.is_multiple_of(2) {
        Bank::One
    } else {
        Bank::Zero
    }
}

fn state(spec: FixedSpec) -> StateSpec {
    StateSpec {
        paged: None,
        fixed: vec![spec],
        captures_in_mixed_steps: true,
    }
}

/// What the operator captures of token `t`: the transition, or the state after it.
fn captured(spec: &FixedSpec, row: &Row, t: usize) -> Vec<f32> {
    let width = spec.checkpoints.as_ref().unwrap().width;
    let factors = match sections(spec)[..] {
        [decays, _, _] => decays,
        _ => 0,
    };
    let value = |at| match noise(row.slot * 16 + t, row.tokens, at) {
        value if at < factors => value.abs(),
        value => value,
    };
    (0..width).map(value).collect()
}

/// Elements of the parts of a transition; a state has one.
fn sections(spec: &FixedSpec) -> Vec<usize> {
    let checkpoints = spec.checkpoints.as_ref().unwrap();
    match (checkpoints.form, spec.row_shape.as_slice()) {
        (CheckpointForm::Update, &[values, value_dim, key_dim]) => {
            let (keys, deltas) = (spec.key_heads.unwrap() * key_dim, values * value_dim);
            vec![checkpoints.width - keys - deltas, keys, deltas]
        }
        _ => vec![checkpoints.width],
    }
}

/// Writes what is captured of token `t` where an operator of this layout and alignment puts it.
fn capture(
    spec: &FixedSpec,
    written: CheckpointAlignment,
    (step_rows, index): (usize, usize),
    (row, t): (&Row, usize),
    staging: &mut [f32],
) {
    let checkpoints = spec.checkpoints.as_ref().unwrap();
    let (count, width) = (checkpoints.count, checkpoints.width);
    let values = captured(spec, row, t);
    if checkpoints.form == CheckpointForm::State || spec.layout == StateLayout::Bank {
        let slot = match written {
            CheckpointAlignment::Left => t,
            CheckpointAlignment::Right => count - row.tokens + t,
        };
        let series = SeriesLayout::new(count, step_rows, width);
        staging[series.elements(slot, index).unwrap()].copy_from_slice(&values);
        return;
    }
    let (mut start, mut part) = (index * count * width, 0);
    for extent in sections(spec) {
        let at = start + t * extent;
        staging[at..at + extent].copy_from_slice(&values[part..part + extent]);
        start += count * extent;
        part += extent;
    }
}

/// Steps that together hold every length and every kept prefix, rows and slots in changing order.
fn steps(capacity: usize) -> Vec<Vec<Row>> {
    let lengths = (1..=capacity).flat_map(|tokens| (1..=tokens).map(move |kept| (tokens, kept)));
    let mut all: Vec<(usize, usize)> = lengths.collect();
    // Short and long rows side by side.
    all.sort_by_key(|(tokens, kept)| (tokens * 7 + kept * 3) % 11);
    let step = |(number, lengths): (usize, &[(usize, usize)])| {
        let row = |(index, &(tokens, kept)): (usize, &(usize, usize))| Row {
            slot: (index * 2 + number) % SLOTS,
            tokens,
            kept,
        };
        lengths.iter().enumerate().map(row).collect()
    };
    all.chunks(SLOTS - 1).enumerate().map(step).collect()
}

/// The largest difference of the states that are made; all others must be equal.
fn compare(mut host: World, mut device: World, exact: bool) -> f32 {
    let capacity = host.pool.capture_capacity();
    let mut worst = 0.0f32;
    for rows in steps(capacity) {
        let (expected, found) = (host.step(&rows), device.step(&rows));
        host.check_the_others(&rows, &expected);
        device.check_the_others(&rows, &found);
        for row in &rows {
            let expected = &expected[host.committed(row.slot)];
            let found = &found[device.committed(row.slot)];
            if row.kept < row.tokens && !exact {
                let differences = expected.iter().zip(found).map(|(a, b)| (a - b).abs());
                worst = differences.fold(worst, f32::max);
            } else {
                assert_eq!(expected, found, "{rows:?}: {row:?}");
            }
        }
    }
    worst
}

#[test]
fn graphs_leave_convolutions_as_the_host_does() {
    for (name, spec) in [
        ("conv-1", conv([3, 3], 1)),
        ("conv-3", conv([3, 3], 3)),
        ("conv-8", conv([3, 3], 8)),
        ("conv-8-kernel-2", conv([3, 1], 8)),
    ] {
        let device = World::new(by_rows(spec.clone()), Some(name));
        assert_eq!(compare(World::new(spec, None), device, true), 0.0, "{name}");
    }
}

#[test]
fn graphs_leave_recurrent_states_as_the_host_does() {
    for (name, spec) in [
        ("delta-1", delta(2, [4, 3, 2], 1)),
        ("delta-3", delta(2, [4, 3, 2], 3)),
        ("delta-8", delta(2, [4, 3, 2], 8)),
        ("delta-3-per-key", per_key(delta(2, [4, 3, 2], 3))),
        ("delta-8-per-key", per_key(delta(2, [4, 3, 2], 8))),
    ] {
        let device = World::new(by_rows(spec.clone()), Some(name));
        let worst = compare(World::new(spec, None), device, false);
        println!("{name}: largest difference {worst:e}");
        assert!(worst <= 1e-6, "{name}: {worst:e}");
    }
}

#[test]
fn graphs_copy_the_slots_that_the_host_copies() {
    for alignment in [CheckpointAlignment::Left, CheckpointAlignment::Right] {
        for (name, spec) in [
            ("series-conv-8", conv([3, 3], 8)),
            ("series-delta-8", delta(2, [4, 3, 2], 8)),
        ] {
            let spec = series(spec, alignment);
            let device = World::new(by_rows(spec.clone()), Some(name));
            assert_eq!(compare(World::new(spec, None), device, true), 0.0, "{name}");
        }
    }
}

#[test]
fn a_slot_is_that_of_the_last_kept_token() {
    for alignment in [CheckpointAlignment::Left, CheckpointAlignment::Right] {
        let mut world = World::new(series(conv([3, 3], 8), alignment), None);
        for rows in steps(8) {
            let bank = world.step(&rows);
            for row in rows.iter().filter(|row| row.kept < row.tokens) {
                let found = &bank[world.committed(row.slot)];
                assert_eq!(*found, captured(&world.spec, row, row.kept - 1), "{row:?}");
            }
        }
    }
}

/// The host and a graph alike: where an operator aligns otherwise than is declared, only a full window is right.
#[test]
fn a_swapped_alignment_gives_another_state() {
    let (left, right) = (CheckpointAlignment::Left, CheckpointAlignment::Right);
    for graph in [None, Some("series-conv-8")] {
        for (declared, written) in [(left, right), (right, left)] {
            let mut world = World::new(series(conv([3, 3], 8), declared), graph);
            world.written = written;
            for tokens in 2..=8 {
                let row = Row {
                    slot: 0,
                    tokens,
                    kept: 1,
                };
                let bank = world.step(&[row]);
                let expected = captured(&world.spec, &row, 0);
                let found = &bank[world.committed(0)];
                assert_eq!(*found == expected, tokens == 8, "{declared:?}: {row:?}");
            }
        }
    }
}

#[test]
fn checkpoints_out_of_reach_need_a_graph() {
    let pool = |spec: FixedSpec, device: &dyn Device| {
        StatePool::new(&state(spec), 2, 2, device).map(|_| ())
    };
    let error = pool(by_rows(conv([3, 3], 8)), &Distant).unwrap_err();
    assert!(matches!(error, PoolError::NoCommit { layer: 3, .. }));
    let message = error.to_string();
    assert!(
        message.contains("a distant device, which the host cannot touch"),
        "{message}"
    );
    let plain = FixedSpec {
        checkpoints: None,
        ..conv([3, 3], 8)
    };
    pool(plain, &Distant).unwrap();
    let message = pool(by_rows(conv([3, 3], 8)), &HostDevice)
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("state_layout is rows, expected bank"),
        "{message}"
    );

    let two = StateSpec {
        fixed: vec![by_rows(conv([3, 3], 8)), by_rows(conv([3, 3], 8))],
        ..state(conv([3, 3], 8))
    };
    let one = commit_graphs(&two.fixed[..1], &["conv-8"]);
    let error = StatePool::with_commit(&two, 2, 2, (&Distant, Some(one))).unwrap_err();
    assert!(matches!(error, PoolError::NoCommit { .. }));
}
