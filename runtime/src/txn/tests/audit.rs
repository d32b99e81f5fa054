//! Every invariant is broken once in a copy of a sound snapshot, and the audit names it.

use super::fixture::*;
use crate::state::Slot;
use crate::state::audit::{Invariant, audit, audit_step};
use crate::txn::{Composite, PagedSnapshot, Snapshot, StepRow};

fn sound() -> Composite {
    let mut composite = composite(Form::Update(4), 3, 8, true);
    let row = |request, tokens| StepRow {
        head_tokens: 3,
        ..StepRow::plain(id(request), tokens, true)
    };
    let mut step = composite.reserve(&[row(1, 5), row(2, 3)]).unwrap();
    run(&mut step, Form::Update(4), &[vec![1; 5], vec![2; 3]]);
    step.accept_all()
        .validate()
        .unwrap()
        .prepare()
        .unwrap()
        .publish();
    composite
}

fn paged(snapshot: &mut Snapshot) -> &mut PagedSnapshot {
    snapshot.paged.as_mut().unwrap()
}

/// Breaks a sound snapshot and returns the invariants that the audit finds broken.
fn broken(damage: impl FnOnce(&mut Snapshot)) -> Vec<Invariant> {
    let mut snapshot = sound().snapshot();
    assert_eq!(audit(&snapshot), Vec::new());
    damage(&mut snapshot);
    let mut found: Vec<Invariant> = audit(&snapshot).into_iter().map(|v| v.invariant).collect();
    found.dedup();
    found
}

#[test]
fn i1_places_and_slots_add_up() {
    assert_eq!(broken(|s| s.capacity = 1), [Invariant::I1]);
    assert_eq!(
        broken(|s| s.fixed.as_mut().unwrap().entries.truncate(2)),
        [Invariant::I1]
    );
}

#[test]
fn i2_one_slot_per_request_and_clean_zero_rows() {
    let twice = |s: &mut Snapshot| {
        s.fixed.as_mut().unwrap().entries[2].slot = Slot::Reserved { request: id(1) };
    };
    assert_eq!(broken(twice), [Invariant::I2]);
    assert_eq!(
        broken(|s| s.fixed.as_mut().unwrap().zero_rows_clean = false),
        [Invariant::I2]
    );
    let nothing = |s: &mut Snapshot| {
        let Slot::Committed { version, .. } = &mut s.fixed.as_mut().unwrap().entries[0].slot else {
            panic!("a resident")
        };
        *version = 0;
    };
    assert_eq!(broken(nothing), [Invariant::I2]);
}

#[test]
fn i3_the_same_requests_own_state_and_blocks() {
    let freed = |s: &mut Snapshot| s.fixed.as_mut().unwrap().entries[1].slot = Slot::Free;
    assert_eq!(broken(freed), [Invariant::I3]);
    let renamed = |s: &mut Snapshot| s.head.as_mut().unwrap().tables[1].0 = id(9);
    assert_eq!(broken(renamed), [Invariant::I3]);
    let renamed = |s: &mut Snapshot| paged(s).tables[1].0 = id(9);
    assert_eq!(broken(renamed), [Invariant::I3]);
}

#[test]
fn i4_the_same_tokens_everywhere() {
    assert_eq!(broken(|s| s.residents[0].1 += 1), [Invariant::I4]);
    assert_eq!(
        broken(|s| paged(s).tables[0].1.committed += 1),
        [Invariant::I4]
    );
    assert_eq!(
        broken(|s| s.head.as_mut().unwrap().tables[0].1.committed -= 1),
        []
    );
}

#[test]
fn i5_every_block_is_accounted_for() {
    assert_eq!(broken(|s| paged(s).references[0] += 1), [Invariant::I5]);
    assert_eq!(broken(|s| paged(s).free.truncate(1)), [Invariant::I5]);
    let doubled = |s: &mut Snapshot| {
        let block = paged(s).free[0];
        paged(s).free.push(block);
    };
    assert_eq!(broken(doubled), [Invariant::I5]);
    let stolen = |s: &mut Snapshot| {
        let block = paged(s).tables[0].1.blocks[0];
        paged(s).tables[1].1.blocks[0] = block;
    };
    assert_eq!(broken(stolen), [Invariant::I5]);
    let short = |s: &mut Snapshot| paged(s).tables[0].1.committed = 9;
    assert!(broken(short).contains(&Invariant::I5));
    let claimed = |s: &mut Snapshot| {
        let block = paged(s).free[0];
        paged(s).reserved.push((id(3), vec![block]));
    };
    assert_eq!(broken(claimed), [Invariant::I5]);
}

/// A snapshot of a step in which request 1, with a block and one token in the next, has two branches.
fn branching() -> Snapshot {
    let mut composite = sound();
    let tree = StepRow {
        branches: vec![2, 3],
        ..StepRow::plain(id(1), 1, false)
    };
    let step = composite.reserve(&[tree]).unwrap();
    assert_eq!(audit(&step.snapshot()), Vec::new());
    step.snapshot()
}

#[test]
fn branches_share_full_blocks_and_own_the_rest() {
    let broken = |damage: &dyn Fn(&mut PagedSnapshot)| {
        let mut snapshot = branching();
        damage(paged(&mut snapshot));
        let found = audit(&snapshot).into_iter().map(|v| v.invariant);
        found.collect::<Vec<_>>()
    };
    let tables = |paged: &PagedSnapshot| (paged.shared.len(), paged.reserved.len());
    assert_eq!(tables(paged(&mut branching())), (2, 2));
    // The block that is filled in part, shared as if it were full.
    let shared = |paged: &mut PagedSnapshot| {
        let tail = paged.tables[0].1.blocks[1];
        let own = std::mem::replace(&mut paged.reserved[0].1[0], tail);
        let branch = paged.reserved.remove(0);
        paged.shared.push(branch);
        paged.references[tail.index()] += 1;
        paged.references[own.index()] -= 1;
        paged.free.push(own);
    };
    assert_eq!(broken(&shared), [Invariant::I8]);
    // One block for both branches.
    let twice = |paged: &mut PagedSnapshot| {
        let first = paged.reserved[0].1[0];
        let second = std::mem::replace(&mut paged.reserved[1].1[0], first);
        paged.references[first.index()] += 1;
        paged.references[second.index()] -= 1;
        paged.free.push(second);
    };
    assert!(broken(&twice).contains(&Invariant::I5));
    let uncounted = |paged: &mut PagedSnapshot| drop(paged.shared.remove(0));
    assert_eq!(broken(&uncounted), [Invariant::I5]);
}

#[test]
fn i6_committed_tokens_never_fall() {
    let before = sound().snapshot();
    let fell = |damage: fn(&mut Snapshot)| {
        let mut after = before.clone();
        damage(&mut after);
        audit_step(&before, &after)
            .into_iter()
            .map(|v| v.invariant)
            .collect::<Vec<_>>()
    };
    assert_eq!(fell(|_| ()), []);
    assert_eq!(fell(|s| s.residents[0].1 -= 1), [Invariant::I6]);
    assert_eq!(
        fell(|s| paged(s).tables[0].1.committed -= 1),
        [Invariant::I6]
    );
    assert_eq!(
        fell(|s| s.head.as_mut().unwrap().tables[0].1.committed -= 1),
        [Invariant::I6]
    );
    assert_eq!(fell(|s| s.residents.truncate(1)), [], "released");
}

#[test]
fn i7_a_torn_composite_is_reported() {
    assert_eq!(broken(|s| s.healthy = false), [Invariant::I7]);
    let text = audit(&Snapshot {
        healthy: false,
        ..sound().snapshot()
    })[0]
        .to_string();
    assert_eq!(text, "I7: a step was published in part");
}

#[test]
fn i8_shared_blocks_are_full() {
    let share = |whose: usize| {
        move |s: &mut Snapshot| {
            let paged = paged(s);
            // Both tables fill their last block; the second one's is given up for one of the first's.
            let block = paged.tables[0].1.blocks[whose];
            let own = std::mem::replace(&mut paged.tables[1].1.blocks[0], block);
            paged.references[block.index()] = 2;
            paged.references[own.index()] = 0;
            paged.free.push(own);
        }
    };
    // Full in the first, filled by the second; filled by both.
    assert_eq!(broken(share(0)), [Invariant::I8]);
    assert_eq!(broken(share(1)), [Invariant::I8]);
    let both_full = |s: &mut Snapshot| {
        share(0)(s);
        paged(s).tables[1].1.committed = 4;
        s.residents[1].1 = 4;
        let fixed = s.fixed.as_mut().unwrap();
        let Slot::Committed { tokens, .. } = &mut fixed.entries[1].slot else {
            panic!("a resident")
        };
        *tokens = 4;
    };
    assert_eq!(broken(both_full), []);
}
