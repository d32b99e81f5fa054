//! Everything that resident requests keep between steps, reachable through one transaction only.

use super::branches;
use super::error::StepError;
use super::faults::Faults;
use super::participant::{Permit, Seat};
use super::phase::Reserved;
use super::step::{Row, Step};
use crate::ids::RequestId;
use crate::kv::{BlockId, Blocks, KeysValues, KvError, KvPool, KvReservation, KvRow};
use crate::state::{FixedRow, RowBytes, SlotHandle, StatePool, StateReservation};
use std::collections::HashMap;
use std::num::NonZeroUsize;

/// One row of a step to be reserved, and the rows that branch off the same committed state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepRow {
    /// Whose row.
    pub(crate) request: RequestId,
    /// Tokens the row runs, drafts included; at least 1.
    pub(crate) tokens: usize,
    /// How many of the tokens, the last ones, are drafts that may be rejected. They are captured.
    pub(crate) drafts: usize,
    /// Positions that the draft head may write for the request; 0 without a head.
    pub(crate) head_tokens: usize,
    /// Whether the row admits the request.
    pub(crate) new: bool,
    /// Tokens that each branch runs, the known ones included and at least one more; empty for a linear row. In the batch
    /// the branches follow the row.
    pub(crate) branches: Vec<usize>,
    /// Positions that each branch of the draft head may write, from the head's committed length on. As many of them as
    /// the cache has room for are granted, the first ones: see [`Step::head_branches`].
    pub(crate) head_branches: Vec<usize>,
}

impl StepRow {
    /// A row without drafts and without positions of a draft head.
    pub(crate) fn plain(request: RequestId, tokens: usize, new: bool) -> Self {
        Self {
            request,
            tokens,
            drafts: 0,
            head_tokens: 0,
            new,
            branches: Vec::new(),
            head_branches: Vec::new(),
        }
    }

    /// Tokens to capture: every one after which the row may end, less the last, whose state is the final one.
    pub(crate) fn captured(&self) -> usize {
        if self.drafts == 0 {
            0
        } else {
            self.tokens.saturating_sub(1)
        }
    }
}

/// A request that has published a step and was not released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resident {
    /// Its slot, if the model has fixed state.
    pub(super) slot: Option<SlotHandle>,
    /// Tokens committed.
    pub(crate) tokens: usize,
}

/// Whether all participants agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// They do.
    Sound,
    /// A step was published in part (a participant broke its promise and panicked).
    Torn,
}

/// The pools of one engine. There is no way to them but [`Composite::reserve`] and what follows it, and
/// [`Composite::release`].
#[derive(Debug)]
pub(crate) struct Composite {
    pub(super) state: Option<StatePool>,
    pub(super) kv: Option<KvPool>,
    pub(super) head: Option<KvPool>,
    pub(super) standing: Standing,
}

/// What the composite itself knows.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) capacity: usize,
    pub(super) residents: HashMap<RequestId, Resident>,
    pub(super) health: Health,
    pub(super) faults: Faults,
}

impl Composite {
    /// `capacity` requests can be resident (no more than the pool of fixed state has slots, where there is one).
    /// `head` is the cache of a draft head.
    pub(crate) fn new(
        capacity: usize,
        state: Option<StatePool>,
        kv: Option<KvPool>,
        head: Option<KvPool>,
    ) -> Self {
        let capacity = state
            .as_ref()
            .map_or(capacity, |state| capacity.min(state.slots()));
        let residents = HashMap::with_capacity(capacity);
        let standing = Standing {
            capacity,
            residents,
            health: Health::Sound,
            faults: Faults::default(),
        };
        Self {
            state,
            kv,
            head,
            standing,
        }
    }

    /// Requests that can be resident at once.
    pub(crate) fn capacity(&self) -> usize {
        self.standing.capacity
    }

    /// Tokens committed of a resident request.
    pub(crate) fn tokens(&self, request: RequestId) -> Option<usize> {
        self.standing
            .residents
            .get(&request)
            .map(|resident| resident.tokens)
    }

    /// Positions that the draft head has committed for a resident request.
    pub(crate) fn head_tokens(&self, request: RequestId) -> Option<usize> {
        Some(self.head.as_ref()?.table(request)?.committed)
    }

    /// Blocks that a resident request uses: of the paged cache, and of the draft head's.
    pub(crate) fn blocks(&self, request: RequestId) -> [&[BlockId]; 2] {
        [&self.kv, &self.head].map(|pool| {
            let table = pool.as_ref().and_then(|pool| pool.table(request));
            table.map_or(&[][..], |table| &table.blocks)
        })
    }

    /// Resident requests, in no particular order.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn residents(&self) -> impl Iterator<Item = RequestId> {
        self.standing.residents.keys().copied()
    }

    /// Blocks of the caches, 0 where there is none, and tokens per block.
    pub(crate) fn cache_extent(&self) -> (Blocks, usize) {
        let total = |pool: &Option<KvPool>| pool.as_ref().map_or(0, |pool| pool.blocks().total());
        let blocks = Blocks {
            decoder: total(&self.kv),
            head: total(&self.head),
        };
        let size = self.kv.as_ref().map_or(0, KvPool::block_size);
        (blocks, size)
    }

    /// The committed fixed state of a resident request, one row per tensor in manifest order.
    ///
    /// # Errors
    /// Requests that are not resident, memory the host cannot read, and a torn composite.
    pub(crate) fn committed_rows(
        &self,
        request: RequestId,
    ) -> Result<Vec<RowBytes<'_>>, StepError> {
        self.refuse_if_torn()?;
        let resident = self
            .standing
            .residents
            .get(&request)
            .ok_or(StepError::Unknown(request))?;
        match (&self.state, resident.slot) {
            (Some(state), Some(slot)) => Ok(state.committed_rows(request, slot)?),
            _ => Ok(Vec::new()),
        }
    }

    /// What the cache holds of a resident request's committed positions, per layer. Empty without a paged cache.
    ///
    /// # Errors
    /// As [`Self::committed_rows`].
    pub(crate) fn committed_cache(&self, request: RequestId) -> Result<Vec<KeysValues>, StepError> {
        self.refuse_if_torn()?;
        match &self.kv {
            Some(kv) => Ok(kv.committed_rows(request)?),
            None => Ok(Vec::new()),
        }
    }

    /// Lets calls of later steps fail as `faults` says.
    #[cfg(test)]
    pub(crate) fn set_faults(&mut self, faults: Faults) {
        self.standing.faults = faults;
    }

    /// As [`Self::committed_cache`], of the draft head.
    #[cfg(test)]
    pub(crate) fn committed_head(&self, request: RequestId) -> Vec<KeysValues> {
        let head = self.head.as_ref();
        head.map_or_else(Vec::new, |head| head.committed_rows(request).unwrap())
    }

    /// Blocks of the paged cache that nobody uses; 0 without one.
    pub(crate) fn free_blocks(&self) -> usize {
        self.kv.as_ref().map_or(0, |kv| kv.blocks().free().len())
    }

    /// Starts a step. Rows are in batch order, each directly followed by its branches. Dropping the step at any phase before publishing undoes it.
    ///
    /// # Errors
    /// Nothing changes on error. [`StepError::can_wait`] tells a lack of room from a mistake.
    pub(crate) fn reserve(&mut self, rows: &[StepRow]) -> Result<Step<'_, Reserved>, StepError> {
        self.check(rows)?;
        let records = rows
            .iter()
            .map(|row| Row::new(row, self.tokens(row.request)))
            .collect();
        let faults = &self.standing.faults;
        faults.call("reserve cache")?;
        let mut kv = reserve_kv(self.kv.as_mut(), rows, |row| row.tokens)?;
        faults.call("reserve head")?;
        let mut head =
            reserve_kv(self.head.as_mut(), rows, |row| row.head_tokens).map_err(StepError::Head)?;
        faults.call("reserve state")?;
        let mut state = reserve_state(self.state.as_mut(), &self.standing.residents, rows)?;
        let seats = (&mut state, &mut kv, &mut head);
        branches::reserve(seats, rows, faults)?;
        faults.call("reserve")?;
        self.standing
            .residents
            .reserve(rows.iter().filter(|row| row.new).count());
        Ok(Step::new(records, (state, kv, head), &mut self.standing))
    }

    /// Forgets a request: its slot and its blocks are free. Between steps only.
    ///
    /// # Errors
    /// Requests that are not resident; nothing changes.
    pub(crate) fn release(&mut self, request: RequestId) -> Result<(), StepError> {
        let resident = self
            .standing
            .residents
            .get(&request)
            .ok_or(StepError::Unknown(request))?;
        let slot = self.state.as_mut().zip(resident.slot);
        if let Some((state, handle)) = &slot {
            state.validate_release(request, *handle)?;
        }
        let permit = Permit::between_steps();
        if let Some((state, handle)) = slot {
            state.release(handle, &permit);
        }
        for pool in [&mut self.kv, &mut self.head].into_iter().flatten() {
            pool.release(request, &permit);
        }
        self.standing.residents.remove(&request);
        Ok(())
    }

    /// A publication that did not run to its end may have left state half made.
    fn refuse_if_torn(&self) -> Result<(), StepError> {
        match self.standing.health {
            Health::Torn => Err(StepError::Torn),
            Health::Sound => Ok(()),
        }
    }

    fn check(&self, rows: &[StepRow]) -> Result<(), StepError> {
        self.refuse_if_torn()?;
        if rows.is_empty() || rows.iter().any(|row| row.tokens == 0) {
            return Err(StepError::Empty);
        }
        for row in rows {
            let &StepRow {
                request,
                tokens,
                drafts,
                ..
            } = row;
            let resident = self.standing.residents.contains_key(&request);
            if resident == row.new {
                return Err(StepError::Residency { request, resident });
            }
            if drafts >= tokens {
                return Err(StepError::Drafts {
                    request,
                    drafts,
                    tokens,
                });
            }
            let head = row.head_tokens > 0 || !row.head_branches.is_empty();
            if head && self.head.is_none() {
                return Err(StepError::NoHead(request));
            }
            let known = tokens - drafts;
            if let Some(tokens) = row.branches.iter().find(|tokens| **tokens <= known) {
                return Err(StepError::Branch {
                    request,
                    tokens: *tokens,
                    known,
                });
            }
        }
        let needed = rows.iter().filter(|row| row.new).count();
        let free = self
            .standing
            .capacity
            .saturating_sub(self.standing.residents.len());
        if needed > free {
            return Err(StepError::Full { needed, free });
        }
        Ok(())
    }
}

fn reserve_kv<'a>(
    pool: Option<&'a mut KvPool>,
    rows: &[StepRow],
    tokens: impl Fn(&StepRow) -> usize,
) -> Result<Option<Seat<KvReservation<'a>>>, KvError> {
    let row = |row: &StepRow| KvRow {
        request: row.request,
        tokens: tokens(row),
        new: row.new,
    };
    let rows: Vec<KvRow> = rows.iter().map(row).collect();
    pool.map(|pool| pool.reserve(&rows)).transpose()
}

fn reserve_state<'a>(
    pool: Option<&'a mut StatePool>,
    residents: &HashMap<RequestId, Resident>,
    rows: &[StepRow],
) -> Result<Option<Seat<StateReservation<'a>>>, StepError> {
    let Some(pool) = pool else { return Ok(None) };
    let mut fixed = Vec::with_capacity(rows.len());
    for row in rows {
        let handle = residents
            .get(&row.request)
            .and_then(|resident| resident.slot);
        let tokens = NonZeroUsize::new(row.tokens).ok_or(StepError::Empty)?;
        fixed.push(FixedRow {
            request: row.request,
            handle,
            tokens,
            captured: row.captured(),
        });
    }
    Ok(Some(pool.reserve(&fixed)?))
}
