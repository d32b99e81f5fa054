//! One step's claim on the paged cache: blocks taken, lengths chosen, published.

use super::blocks::BlockId;
use super::candidate::Candidate;
use super::error::KvError;
use super::pool::{BlockTable, KvPool};
use crate::ids::RequestId;
use crate::model::spec::PagedBuffers;
use crate::txn::{Participant, ParticipantError, Permit};

/// One row of a step, as the cache needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KvRow {
    /// Whose row.
    pub(crate) request: RequestId,
    /// Positions the row may write, from its committed length on; may be 0.
    pub(crate) tokens: usize,
    /// Whether the row admits the request.
    pub(crate) new: bool,
}

#[derive(Debug)]
pub(super) struct ReservedRow {
    pub(super) request: RequestId,
    pub(super) new: bool,
    pub(super) past: usize,
    pub(super) tokens: usize,
    pub(super) owned: usize,
    pub(super) taken: Vec<BlockId>,
    /// How many of `taken`, the first ones, are another table's: they are read only.
    #[cfg_attr(
        not(any(test, feature = "fuzzing")),
        expect(
            dead_code,
            reason = "audits during a step, which tests make, ask for it"
        )
    )]
    pub(super) shared: usize,
    /// Tables of the rows that branch off the same committed positions.
    pub(super) branches: Vec<Candidate>,
    /// The row whose positions are kept: 0 for the own one, `i` for branch `i - 1`.
    pub(super) winner: usize,
    pub(super) kept: Option<usize>,
}

/// The cache's participant.
#[derive(Debug)]
pub(crate) struct KvReservation<'a> {
    pub(super) pool: &'a mut KvPool,
    pub(super) rows: Vec<ReservedRow>,
}

/// Paged inputs of the graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PagedBinding {
    /// `[rows]`: committed lengths.
    pub(crate) past: Vec<i32>,
    /// `[rows, max_blocks]`, row-major; -1 is unmapped.
    pub(crate) block_table: Vec<i32>,
    /// Columns of `block_table`, at least 1.
    pub(crate) max_blocks: usize,
}

/// A committed length, and blocks in the order of positions: those of a table, and more.
type Table<'t> = (usize, &'t [BlockId], &'t [BlockId]);

impl<'a> KvReservation<'a> {
    pub(super) fn new(pool: &'a mut KvPool, rows: &[KvRow]) -> Result<Self, KvError> {
        let mut reserved = Vec::with_capacity(rows.len());
        let mut needs = Vec::with_capacity(rows.len());
        for (index, row) in rows.iter().enumerate() {
            let earlier = rows
                .iter()
                .take(index)
                .any(|other| other.request == row.request);
            let (row, need) = claim(pool, row, earlier)?;
            reserved.push(row);
            needs.push(need);
        }
        let (needed, free) = (needs.iter().sum(), pool.blocks.free().len());
        if needed > free {
            return Err(KvError::OutOfBlocks { needed, free });
        }
        let mut reservation = Self {
            pool,
            rows: reserved,
        };
        reservation.make_room();
        for (row, need) in reservation.rows.iter_mut().zip(needs) {
            row.taken = reservation.pool.blocks.take(need).unwrap_or_default();
        }
        Ok(reservation)
    }

    /// What the graph is given, for the whole step: every row, directly followed by its branches.
    pub(crate) fn binding(&self) -> PagedBinding {
        let rows = self.rows.iter().enumerate();
        let rows = rows.flat_map(|(row, reserved)| {
            (0..=reserved.branches.len()).map(move |candidate| (row, candidate))
        });
        self.binding_of(rows)
    }

    /// What the graph is given when it runs only some rows of the step, in the given order: each is a row and its
    /// candidate, 0 for the row itself, `i` for branch `i - 1`. One that is not there reads nothing.
    pub(crate) fn binding_of(
        &self,
        rows: impl IntoIterator<Item = (usize, usize)>,
    ) -> PagedBinding {
        let tables: Vec<Table<'_>> = rows.into_iter().map(|row| self.table(row)).collect();
        let widths = tables
            .iter()
            .map(|(_, blocks, more)| blocks.len() + more.len());
        let max_blocks = widths.max().unwrap_or(0).max(1);
        let mut binding = PagedBinding {
            past: Vec::with_capacity(tables.len()),
            block_table: Vec::with_capacity(tables.len() * max_blocks),
            max_blocks,
        };
        for (past, blocks, more) in tables {
            binding.past.push(i32::try_from(past).unwrap_or(i32::MAX));
            let blocks = blocks.iter().chain(more).copied();
            let columns = blocks.map(BlockId::column).chain(std::iter::repeat(-1));
            binding.block_table.extend(columns.take(max_blocks));
        }
        binding
    }

    /// The committed length and the blocks, in two parts, of a candidate of a row; nothing where there is none.
    fn table(&self, (row, candidate): (usize, usize)) -> Table<'_> {
        let Some(row) = self.rows.get(row) else {
            return Table::default();
        };
        match candidate.checked_sub(1) {
            None => (row.past, self.own_blocks(row), &row.taken),
            Some(branch) => match row.branches.get(branch) {
                Some(branch) => (row.past, branch.table(), &[]),
                None => Table::default(),
            },
        }
    }

    /// The tensors for the run, in manifest order. Operators write positions at or beyond the committed length only.
    pub(crate) fn buffers(&mut self) -> &mut [PagedBuffers] {
        &mut self.pool.buffers
    }

    /// Decides, once, that only the first `kept` positions of a row become valid. A row that is never asked keeps all.
    ///
    /// # Errors
    /// Rows outside the step, a second decision, more positions than reserved.
    pub(crate) fn commit_prefix(&mut self, row: usize, kept: usize) -> Result<(), KvError> {
        let rows = self.rows.len();
        let reserved = self
            .rows
            .get_mut(row)
            .ok_or(KvError::UnknownRow { row, rows })?;
        if reserved.kept.is_some() {
            return Err(KvError::Twice(row));
        }
        let tokens = reserved.winning_tokens();
        if kept > tokens {
            return Err(KvError::KeptTooMany { row, kept, tokens });
        }
        reserved.kept = Some(kept);
        Ok(())
    }

    /// Room for what publishing will insert, so that it need not allocate.
    fn make_room(&mut self) {
        self.pool
            .tables
            .reserve(self.rows.iter().filter(|row| row.new).count());
        for row in &self.rows {
            let blocks = blocks_for(row.past + row.tokens, self.pool.block_size);
            if let Some(table) = self.pool.tables.get_mut(&row.request) {
                table
                    .blocks
                    .reserve(blocks.saturating_sub(table.blocks.len()));
            }
        }
    }

    /// Blocks that the row's request had before the step.
    pub(super) fn own_blocks(&self, row: &ReservedRow) -> &[BlockId] {
        let owned = self.pool.tables.get(&row.request);
        owned.map_or(&[][..], |table| table.blocks.as_slice())
    }
}

/// A live reservation as an audit sees it.
#[cfg(any(test, feature = "fuzzing"))]
impl KvReservation<'_> {
    /// The pool.
    pub(crate) fn pool(&self) -> &KvPool {
        self.pool
    }

    /// Blocks taken by this step for itself, by row.
    pub(crate) fn taken(&self) -> impl Iterator<Item = (RequestId, &[BlockId])> {
        self.split().map(|(request, (_, taken))| (request, taken))
    }

    /// Blocks of other tables that this step uses as well, by row.
    pub(crate) fn shared(&self) -> impl Iterator<Item = (RequestId, &[BlockId])> {
        self.split().map(|(request, (shared, _))| (request, shared))
    }

    fn split(&self) -> impl Iterator<Item = (RequestId, (&[BlockId], &[BlockId]))> {
        self.rows.iter().flat_map(|row| {
            let own = row.taken.split_at(row.shared.min(row.taken.len()));
            let branches = row.branches.iter().map(Candidate::split);
            let claims = std::iter::once(own).chain(branches);
            claims.map(|claim| (row.request, claim))
        })
    }
}

impl Participant for KvReservation<'_> {
    fn name(&self) -> &'static str {
        "paged cache"
    }

    fn validate(&self) -> Result<(), ParticipantError> {
        for row in &self.rows {
            let table = self.pool.tables.get(&row.request);
            let found = table.map(|table| (table.committed, table.blocks.len()));
            let expected = (!row.new).then_some((row.past, row.owned));
            if found != expected {
                return Err(KvError::Changed(row.request).into());
            }
        }
        Ok(())
    }

    fn prepare(&mut self) -> Result<(), ParticipantError> {
        Ok(())
    }

    fn publish(&mut self, _permit: &Permit) {
        let block_size = self.pool.block_size;
        for row in &mut self.rows {
            let committed = row.past + row.kept.unwrap_or(row.winning_tokens());
            if let Some(winner) = row.settle(&mut self.pool.blocks) {
                winner.adopt(self.pool, row.request, committed);
                continue;
            }
            let kept = blocks_for(committed, block_size).saturating_sub(row.owned);
            let surplus = row.taken.split_off(kept.min(row.taken.len()));
            self.pool.blocks.give_back(&surplus);
            let taken = std::mem::take(&mut row.taken);
            match self.pool.tables.get_mut(&row.request) {
                Some(table) => {
                    table.blocks.extend(taken);
                    table.committed = committed;
                }
                None => {
                    self.pool.tables.insert(
                        row.request,
                        BlockTable {
                            blocks: taken,
                            committed,
                        },
                    );
                }
            }
        }
    }

    fn discard(&mut self) {
        for row in self.rows.iter_mut().rev() {
            for branch in row.branches.drain(..).rev() {
                branch.discard(&mut self.pool.blocks);
            }
        }
        for row in self.rows.iter_mut().rev() {
            let taken = std::mem::take(&mut row.taken);
            self.pool.blocks.give_back(&taken);
        }
    }
}

/// Blocks that hold `tokens` tokens.
pub(crate) fn blocks_for(tokens: usize, block_size: usize) -> usize {
    tokens.div_ceil(block_size.max(1))
}

/// The row and the blocks it needs beyond what it owns.
fn claim(pool: &KvPool, row: &KvRow, earlier: bool) -> Result<(ReservedRow, usize), KvError> {
    let KvRow {
        request,
        tokens,
        new,
    } = *row;
    let table = pool.tables.get(&request);
    if earlier || (new && table.is_some()) {
        return Err(KvError::Duplicate(request));
    }
    let (past, owned) = match table {
        Some(table) => (table.committed, table.blocks.len()),
        None if new => (0, 0),
        None => return Err(KvError::Unknown(request)),
    };
    let (end, total) = (past.saturating_add(tokens), pool.blocks.total());
    let needed = blocks_for(end, pool.block_size);
    if needed > total {
        return Err(KvError::Unserviceable {
            request,
            needed,
            total,
        });
    }
    let row = ReservedRow {
        request,
        new,
        past,
        tokens,
        owned,
        taken: Vec::new(),
        shared: 0,
        branches: Vec::new(),
        winner: 0,
        kept: None,
    };
    Ok((row, needed.saturating_sub(owned)))
}
