//! The visible bookkeeping of a composite as a value: what an audit checks and what a discarded step must restore.

use super::composite::{Composite, Health};
use crate::ids::RequestId;
use crate::kv::{BlockId, BlockTable, KvPool};
use crate::state::{Entry, StatePool};

/// Who owns what, in a fixed order, so that two snapshots can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// Whether every publish ran to its end.
    pub(crate) healthy: bool,
    /// Requests that can be resident.
    pub(crate) capacity: usize,
    /// Resident requests and their committed tokens, by identity.
    pub(crate) residents: Vec<(RequestId, usize)>,
    /// Fixed state, if the model has any.
    pub(crate) fixed: Option<FixedSnapshot>,
    /// Paged cache, if the model has one.
    pub(crate) paged: Option<PagedSnapshot>,
    /// Cache of the draft head, if there is one.
    pub(crate) head: Option<PagedSnapshot>,
}

/// Slots of the pool of fixed state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FixedSnapshot {
    /// Every slot.
    pub(crate) entries: Vec<Entry>,
    /// Whether the zero rows still read zero.
    pub(crate) zero_rows_clean: bool,
    /// Bank rows to which a state is owed although no slot has its committed state there.
    pub(crate) owed_to_nobody: Vec<usize>,
}

/// Blocks and tables of one paged cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PagedSnapshot {
    /// Tokens per block.
    pub(crate) block_size: usize,
    /// Free blocks, in the order of the free list.
    pub(crate) free: Vec<BlockId>,
    /// Users of every block.
    pub(crate) references: Vec<u32>,
    /// Tables by identity of their request.
    pub(crate) tables: Vec<(RequestId, BlockTable)>,
    /// Blocks taken by a step that is not published.
    pub(crate) reserved: Vec<(RequestId, Vec<BlockId>)>,
    /// Blocks of tables that such a step uses as well.
    pub(crate) shared: Vec<(RequestId, Vec<BlockId>)>,
}

impl Composite {
    /// The bookkeeping between steps.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            healthy: self.standing.health == Health::Sound,
            capacity: self.standing.capacity,
            residents: sorted(
                self.standing
                    .residents
                    .iter()
                    .map(|(request, r)| (*request, r.tokens)),
            ),
            fixed: self.state.as_ref().map(StatePool::snapshot),
            paged: self.kv.as_ref().map(paged),
            head: self.head.as_ref().map(paged),
        }
    }
}

#[cfg(any(test, feature = "fuzzing"))]
impl<Phase> super::Step<'_, Phase> {
    /// The bookkeeping while the step is live.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let standing = self.standing();
        let (state, kv, head) = self.seats();
        Snapshot {
            healthy: standing.health == Health::Sound,
            capacity: standing.capacity,
            residents: sorted(
                standing
                    .residents
                    .iter()
                    .map(|(request, r)| (*request, r.tokens)),
            ),
            fixed: state.map(|state| state.pool().snapshot()),
            paged: kv.map(reserved),
            head: head.map(reserved),
        }
    }
}

impl StatePool {
    fn snapshot(&self) -> FixedSnapshot {
        FixedSnapshot {
            entries: self.entries().to_vec(),
            zero_rows_clean: self.zero_rows_clean(),
            owed_to_nobody: self.owed_to_nobody(),
        }
    }
}

#[cfg(any(test, feature = "fuzzing"))]
fn reserved(reservation: &crate::kv::KvReservation<'_>) -> PagedSnapshot {
    PagedSnapshot {
        reserved: claims(reservation.taken()),
        shared: claims(reservation.shared()),
        ..paged(reservation.pool())
    }
}

#[cfg(any(test, feature = "fuzzing"))]
fn claims<'a>(
    claims: impl Iterator<Item = (RequestId, &'a [BlockId])>,
) -> Vec<(RequestId, Vec<BlockId>)> {
    let claims = claims.filter(|(_, blocks)| !blocks.is_empty());
    claims
        .map(|(request, blocks)| (request, blocks.to_vec()))
        .collect()
}

fn paged(pool: &KvPool) -> PagedSnapshot {
    PagedSnapshot {
        block_size: pool.block_size(),
        free: pool.blocks().free().to_vec(),
        references: pool.blocks().references().to_vec(),
        tables: sorted(
            pool.tables()
                .map(|(request, table)| (request, table.clone())),
        ),
        reserved: Vec::new(),
        shared: Vec::new(),
    }
}

fn sorted<T>(entries: impl Iterator<Item = (RequestId, T)>) -> Vec<(RequestId, T)> {
    let mut entries: Vec<(RequestId, T)> = entries.collect();
    entries.sort_by_key(|(request, _)| *request);
    entries
}
