//! A resident becomes two that go on independently.

use super::composite::{Composite, Health, StepRow};
use super::error::StepError;
use super::phase::Reserved;
use super::step::{Row, Step};
use crate::ids::RequestId;
use crate::kv::{Blocks, KvPool};
use crate::state::FixedRow;
use std::num::NonZeroUsize;

impl Composite {
    /// Admits `to` with what `from` has committed of its first `tokens` tokens: a step of one row whose run is a copy.
    /// Full blocks of the caches are shared, the rest is copied. `from` stays as it is. Where there is fixed state, only
    /// all committed tokens can be had: there is no way back from a state to an earlier one.
    ///
    /// # Errors
    /// A `from` that is not resident and a `to` that is; lengths that cannot be had; lack of room, see
    /// [`StepError::can_wait`]. Nothing changes on error.
    pub(crate) fn fork(
        &mut self,
        from: RequestId,
        to: RequestId,
        tokens: usize,
    ) -> Result<Step<'_, Reserved>, StepError> {
        let resident = self.check_fork(from, to, tokens)?;
        let count = NonZeroUsize::new(tokens).ok_or(StepError::Empty)?;
        let faults = &self.standing.faults;
        faults.call("fork cache")?;
        let kv = self.kv.as_mut();
        let kv = kv.map(|kv| kv.reserve_fork(from, to, tokens)).transpose()?;
        faults.call("fork head")?;
        let head = self.head.as_mut().map(|head| {
            let positions = head_positions(head, from, tokens);
            head.reserve_fork(from, to, positions)
        });
        let head = head.transpose().map_err(StepError::Head)?;
        faults.call("fork state")?;
        let state = match (self.state.as_mut(), resident) {
            (Some(pool), Some(handle)) => {
                let mut state = pool.reserve(&[FixedRow {
                    request: to,
                    handle: None,
                    tokens: count,
                    captured: 0,
                }])?;
                faults.call("copy state")?;
                state.copy_rows(0, (from, handle))?;
                Some(state)
            }
            _ => None,
        };
        self.standing.residents.reserve(1);
        let row = Row::new(&StepRow::plain(to, tokens, true), None);
        Ok(Step::new(vec![row], (state, kv, head), &mut self.standing))
    }

    /// Blocks that [`Composite::fork`] takes of the caches.
    pub(crate) fn fork_blocks(&self, from: RequestId, tokens: usize) -> Blocks {
        let head = self.head.as_ref();
        Blocks {
            decoder: self.kv.as_ref().map_or(0, |kv| kv.fork_blocks(tokens)),
            head: head.map_or(0, |head| {
                head.fork_blocks(head_positions(head, from, tokens))
            }),
        }
    }

    /// Refuses what cannot be forked; gives the slot of `from`.
    fn check_fork(
        &self,
        from: RequestId,
        to: RequestId,
        tokens: usize,
    ) -> Result<Option<crate::state::SlotHandle>, StepError> {
        let standing = &self.standing;
        if standing.health == Health::Torn {
            return Err(StepError::Torn);
        }
        let resident = standing.residents.get(&from);
        let resident = resident.ok_or(StepError::Unknown(from))?;
        if standing.residents.contains_key(&to) {
            return Err(StepError::Residency {
                request: to,
                resident: true,
            });
        }
        let (committed, fixed) = (resident.tokens, self.state.is_some());
        if tokens > committed || (fixed && tokens != committed) {
            return Err(StepError::Position {
                request: from,
                tokens,
                committed,
            });
        }
        let free = standing.capacity.saturating_sub(standing.residents.len());
        if free == 0 {
            return Err(StepError::Full { needed: 1, free });
        }
        Ok(resident.slot)
    }
}

/// Positions that the head of a fork has: it may be behind the decoder.
fn head_positions(head: &KvPool, from: RequestId, tokens: usize) -> usize {
    let committed = head.table(from).map_or(0, |table| table.committed);
    committed.min(tokens)
}
