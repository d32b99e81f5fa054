//! A pure check of the invariants over a snapshot. Run after every step in tests; the invariants' texts are in
//! `manual::state`.

use super::slot::Slot;
use crate::ids::RequestId;
use crate::kv::{BlockTable, blocks_for};
use crate::txn::{FixedSnapshot, PagedSnapshot, Snapshot};
use std::collections::BTreeMap;

/// One of the invariants of a composite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invariant {
    /// Slots add up, and no more requests are resident than fit.
    I1,
    /// A request owns at most one slot; a free slot keeps nothing and is owed nothing; zero rows read zero.
    I2,
    /// Residents, owners of committed slots and owners of block tables are the same requests.
    I3,
    /// Fixed state, paged cache and bookkeeping have committed the same tokens.
    I4,
    /// Every block is free, or reserved by one row, or used as often as it is counted; tables fit their tokens.
    I5,
    /// Committed tokens never fall.
    I6,
    /// Every publish ran to its end.
    I7,
    /// A block with several users is full in each of them, so that nobody writes it.
    I8,
}

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// Which one.
    pub(crate) invariant: Invariant,
    /// What was found.
    pub(crate) found: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {}", self.invariant, self.found)
    }
}

/// Checks I1 to I5, I7 and I8 of a snapshot, between steps or during one. Empty when all hold.
pub(crate) fn audit(snapshot: &Snapshot) -> Vec<Violation> {
    let mut audit = Audit::default();
    audit.require(Invariant::I7, snapshot.healthy, || {
        "a step was published in part".to_owned()
    });
    audit.residents(snapshot);
    if let Some(fixed) = &snapshot.fixed {
        audit.fixed(snapshot, fixed);
    }
    for (name, paged, mirrors) in [
        ("cache", &snapshot.paged, true),
        ("head", &snapshot.head, false),
    ] {
        if let Some(paged) = paged {
            audit.blocks(name, paged);
            audit.tables(name, paged);
            audit.owners(name, snapshot, paged, mirrors);
        }
    }
    audit.0
}

/// Checks I6 between the snapshots before and after a published step. A request in only one of them was admitted or
/// released.
pub(crate) fn audit_step(before: &Snapshot, after: &Snapshot) -> Vec<Violation> {
    let mut audit = Audit::default();
    audit.no_fall("tokens", before.residents.iter().copied(), &after.residents);
    for (name, before, after) in [
        ("cache", &before.paged, &after.paged),
        ("head", &before.head, &after.head),
    ] {
        if let (Some(before), Some(after)) = (before, after) {
            audit.no_fall(name, lengths(before).into_iter(), &lengths(after));
        }
    }
    audit.0
}

fn lengths(paged: &PagedSnapshot) -> Vec<(RequestId, usize)> {
    paged
        .tables
        .iter()
        .map(|(request, table)| (*request, table.committed))
        .collect()
}

#[derive(Default)]
struct Audit(Vec<Violation>);

impl Audit {
    fn require(&mut self, invariant: Invariant, holds: bool, found: impl FnOnce() -> String) {
        if !holds {
            self.0.push(Violation {
                invariant,
                found: found(),
            });
        }
    }

    fn residents(&mut self, snapshot: &Snapshot) {
        let (residents, capacity) = (snapshot.residents.len(), snapshot.capacity);
        self.require(Invariant::I1, residents <= capacity, || {
            format!("{residents} residents in {capacity} places")
        });
    }

    fn fixed(&mut self, snapshot: &Snapshot, fixed: &FixedSnapshot) {
        let slots = fixed.entries.len();
        self.require(Invariant::I1, slots >= snapshot.capacity, || {
            format!("{slots} slots for {} places", snapshot.capacity)
        });
        self.require(Invariant::I2, fixed.zero_rows_clean, || {
            "a zero row was written".to_owned()
        });
        let mut owners: Vec<RequestId> = Vec::new();
        let mut committed = Vec::new();
        let owed = &fixed.owed_to_nobody;
        self.require(Invariant::I2, owed.is_empty(), || {
            format!("states are owed to rows {owed:?}, which nobody has")
        });
        for entry in &fixed.entries {
            if let Some(owner) = entry.slot.owner() {
                self.require(Invariant::I2, !owners.contains(&owner), || {
                    format!("{owner} owns two slots")
                });
                owners.push(owner);
            }
            if let Slot::Committed {
                request,
                tokens,
                version,
                ..
            } = entry.slot
            {
                self.require(Invariant::I2, tokens > 0 && version > 0, || {
                    format!("{request} committed nothing")
                });
                committed.push((request, tokens));
            }
        }
        committed.sort();
        self.same_owners("fixed state", &committed, &snapshot.residents);
        self.same_tokens("fixed state", &committed, &snapshot.residents);
    }

    /// Linear in the blocks, as it may run after every step.
    fn blocks(&mut self, name: &str, paged: &PagedSnapshot) {
        let mut uses = vec![0u32; paged.references.len()];
        let tables = paged.tables.iter().flat_map(|(_, table)| &table.blocks);
        let claimed = paged.reserved.iter().chain(&paged.shared);
        let claimed = claimed.flat_map(|(_, blocks)| blocks);
        for block in tables.chain(claimed) {
            match uses.get_mut(block.index()) {
                Some(uses) => *uses += 1,
                None => self.require(Invariant::I5, false, || format!("{name}: no {block:?}")),
            }
        }
        let mut free = vec![0usize; paged.references.len()];
        for block in &paged.free {
            match free.get_mut(block.index()) {
                Some(free) => *free += 1,
                None => self.require(Invariant::I5, false, || {
                    format!("{name}: no free {block:?}")
                }),
            }
        }
        let blocks = uses.iter().zip(free).zip(&paged.references).enumerate();
        for (index, ((uses, free), counted)) in blocks {
            self.require(Invariant::I5, uses == counted, || {
                format!("{name}: block {index} is used {uses} times and counted {counted} times")
            });
            self.require(Invariant::I5, free == usize::from(*uses == 0), || {
                format!("{name}: block {index} is used {uses} times and {free} times free")
            });
        }
        for block in paged.reserved.iter().flat_map(|(_, blocks)| blocks) {
            let shared = paged
                .references
                .get(block.index())
                .is_some_and(|count| *count > 1);
            self.require(Invariant::I5, !shared, || {
                format!("{name}: reserved {block:?} is shared")
            });
        }
    }

    fn tables(&mut self, name: &str, paged: &PagedSnapshot) {
        for (request, BlockTable { blocks, committed }) in &paged.tables {
            let (owned, needed) = (blocks.len(), blocks_for(*committed, paged.block_size));
            self.require(Invariant::I5, owned == needed, || {
                format!("{name}: {request} has {owned} blocks for {committed} tokens")
            });
            let repeats = blocks
                .iter()
                .enumerate()
                .any(|(i, block)| blocks.iter().take(i).any(|b| b == block));
            self.require(Invariant::I5, !repeats, || {
                format!("{name}: {request} has a block twice")
            });
            let partial = !committed.is_multiple_of(paged.block_size.max(1));
            let last = blocks.last().filter(|_| partial);
            let users = last.and_then(|last| paged.references.get(last.index()));
            self.require(Invariant::I8, users.is_none_or(|users| *users <= 1), || {
                format!("{name}: {request} shares the block that it fills")
            });
        }
    }

    fn owners(&mut self, name: &str, snapshot: &Snapshot, paged: &PagedSnapshot, mirrors: bool) {
        let lengths = lengths(paged);
        self.same_owners(name, &lengths, &snapshot.residents);
        if mirrors {
            self.same_tokens(name, &lengths, &snapshot.residents);
        }
    }

    fn same_owners(
        &mut self,
        name: &str,
        found: &[(RequestId, usize)],
        residents: &[(RequestId, usize)],
    ) {
        let ids = |list: &[(RequestId, usize)]| list.iter().map(|(id, _)| *id).collect::<Vec<_>>();
        let (found, residents) = (ids(found), ids(residents));
        self.require(Invariant::I3, found == residents, || {
            format!("{name} has {found:?}, resident are {residents:?}")
        });
    }

    fn same_tokens(
        &mut self,
        name: &str,
        found: &[(RequestId, usize)],
        residents: &[(RequestId, usize)],
    ) {
        let residents: BTreeMap<RequestId, usize> = residents.iter().copied().collect();
        for (request, tokens) in found {
            let known = residents.get(request).unwrap_or(tokens);
            self.require(Invariant::I4, known == tokens, || {
                format!("{name} of {request} has {tokens} tokens, {known} are committed")
            });
        }
    }

    fn no_fall(
        &mut self,
        name: &str,
        before: impl Iterator<Item = (RequestId, usize)>,
        after: &[(RequestId, usize)],
    ) {
        let after: BTreeMap<RequestId, usize> = after.iter().copied().collect();
        for (request, tokens) in before {
            let now = after.get(&request).unwrap_or(&tokens);
            self.require(Invariant::I6, *now >= tokens, || {
                format!("{name} of {request} fell from {tokens} to {now}")
            });
        }
    }
}
