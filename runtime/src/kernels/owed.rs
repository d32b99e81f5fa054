//! States that are committed and still to be made: by the operator that reads them next, or by the host before it looks.
//!
//! A kept prefix changes the whole state of a row. On its own that is a pass over memory that has left the caches; beside an
//! operator that is about to read the same memory, on its threads, it costs next to nothing.

#![allow(unsafe_code)]

use super::batch::BankRows;
use super::causal_conv::replay_conv;
use super::error::KernelError;
use super::gated_delta_net::{Decay, Heads, replay_delta};
use super::memory::Cells;
use super::parallel::Parallel;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A row of a bank whose state is to be made where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwedState {
    /// Row of the bank. For [`Recipe::Replayed`] it holds the state before the step.
    pub(crate) row: usize,
    /// What of.
    pub(crate) made: Recipe,
}

/// How a state is made. Places count elements of the tensor's checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recipe {
    /// It is what lies there.
    Copied {
        /// The first element.
        from: usize,
        /// How many.
        len: usize,
    },
    /// The first `kept` transitions are applied to the state before the step.
    Replayed {
        /// What a transition is.
        by: Replay,
        /// Where the first transition is.
        first: usize,
        /// From one transition to the next.
        apart: usize,
        /// How many.
        kept: usize,
    },
}

/// What a transition does to a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replay {
    /// It lets the state of each head decay and adds an outer product to it.
    Delta(Heads, Decay),
    /// It appends a sample to each channel.
    Append {
        /// Channels.
        channels: usize,
        /// Samples that a channel keeps.
        history: usize,
    },
}

/// Copied elements that are a piece of work of their own.
const COPIED: usize = 1 << 14;

impl OwedState {
    /// Whether it can be made, in a bank of `rows` rows of `row_elements`, from so many elements of checkpoints.
    pub(crate) fn fits(&self, (rows, row_elements): (usize, usize), checkpoints: usize) -> bool {
        let there = |last: Option<usize>, width: usize| {
            let end = last.and_then(|last| last.checked_add(width));
            end.is_some_and(|end| end <= checkpoints)
        };
        let made = match self.made {
            Recipe::Copied { from, len } => len == row_elements && there(Some(from), len),
            Recipe::Replayed {
                by,
                first,
                apart,
                kept,
            } => {
                let (row, width) = by.extents();
                let last = kept.checked_sub(1).and_then(|last| last.checked_mul(apart));
                let last = last.and_then(|last| first.checked_add(last));
                row == row_elements && there(last, width)
            }
        };
        self.row < rows && made
    }

    /// Whether it is what lies among the checkpoints, whatever its elements mean.
    pub(crate) fn is_copied(&self) -> bool {
        matches!(self.made, Recipe::Copied { .. })
    }

    /// The checkpoint elements that the state is made of.
    pub(crate) fn reads(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (first, apart, count, width) = match self.made {
            Recipe::Copied { from, len } => (from, 0, 1, len),
            Recipe::Replayed {
                by,
                first,
                apart,
                kept,
            } => (first, apart, kept, by.extents().1),
        };
        (0..count).map(move |t| first + t * apart..first + t * apart + width)
    }

    /// The pieces of work that a row of so many elements is made in. None depends on another.
    fn parts(&self, row_elements: usize) -> usize {
        match self.made {
            Recipe::Copied { .. } => row_elements.div_ceil(COPIED),
            Recipe::Replayed { by, .. } => match by {
                Replay::Delta(heads, _) => heads.values,
                Replay::Append { .. } => 1,
            },
        }
    }

    /// The elements of a row that a part makes.
    fn elements(&self, part: usize, row_elements: usize) -> Range<usize> {
        let size = match self.made {
            Recipe::Copied { .. } => COPIED,
            Recipe::Replayed { by, .. } => match by {
                Replay::Delta(heads, _) => heads.head_state(),
                Replay::Append { .. } => row_elements,
            },
        };
        part * size..row_elements.min((part + 1) * size)
    }

    /// Makes one part, whose elements are `state`. What does not fit is not made.
    fn make_part(&self, part: usize, checkpoints: &[f32], state: &mut [f32]) {
        match self.made {
            Recipe::Copied { from, .. } => {
                let from = from + part * COPIED;
                if let Some(from) = checkpoints.get(from..from + state.len()) {
                    state.copy_from_slice(from);
                }
            }
            Recipe::Replayed {
                by,
                first,
                apart,
                kept,
            } => {
                let width = by.extents().1;
                let transition = |t: usize| {
                    let start = first + t * apart;
                    checkpoints.get(start..start + width).unwrap_or_default()
                };
                match by {
                    Replay::Delta(heads, decay) => {
                        replay_delta((heads, decay), transition, kept, (part, state));
                    }
                    Replay::Append { channels, .. } => {
                        replay_conv(channels, transition, kept, state);
                    }
                }
            }
        }
    }

    /// Makes the whole state, `row`, from the tensor's checkpoints. It [fits](Self::fits).
    pub(crate) fn make(&self, checkpoints: &[f32], row: &mut [f32]) {
        let len = row.len();
        for part in 0..self.parts(len) {
            if let Some(state) = row.get_mut(self.elements(part, len)) {
                self.make_part(part, checkpoints, state);
            }
        }
    }
}

impl Replay {
    /// Elements of a state and of a transition.
    fn extents(self) -> (usize, usize) {
        match self {
            Self::Delta(heads, decay) => (heads.state(), heads.transition_of(decay).width()),
            Self::Append { channels, history } => (channels * history, channels),
        }
    }
}

/// What the operators of one session are to make of their banks before they read them, for one run: it is filled before and
/// collected after. Banks go by their addresses.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<HashMap<usize, Account>>);

/// A bank of the run.
#[derive(Debug)]
enum Account {
    /// An operator has had it, and has made what was owed.
    Settled(Vec<OwedState>),
    /// No operator has had it yet.
    Owing(Debt),
    /// An operator makes the states of these rows, or has failed at it.
    Underway(Vec<usize>),
}

/// What is owed to one bank.
#[derive(Debug)]
pub(super) struct Debt {
    row_elements: usize,
    checkpoints: *const [f32],
    states: Vec<OwedState>,
    /// How many of them are made before the operator begins; the others are deferred.
    now: usize,
}

// SAFETY: the checkpoints may be read from any thread, by the contract of `Ledger::owe`.
unsafe impl Send for Debt {}

/// What has become of a bank in a run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Collected {
    /// An operator had it. These states, if any, were owed and are made.
    Made(Vec<OwedState>),
    /// No operator had it. These states, if any, are owed as before.
    Untouched(Vec<OwedState>),
    /// An operator failed in the middle: these rows hold neither what they did nor what they should.
    Lost(Vec<usize>),
}

impl Ledger {
    /// Forgets an earlier run.
    pub(crate) fn begin(&self) {
        self.accounts().clear();
    }

    /// Leaves states of a bank to its operator.
    ///
    /// # Safety
    /// The states must all [fit](OwedState::fits) the bank, whose rows have `row_elements`, and the checkpoints, and be of
    /// different rows. The checkpoints must be valid until [`Ledger::begin`] or [`Ledger::collect`] for the bank, and be
    /// written by nobody before its operator has made the states.
    pub(crate) unsafe fn owe(
        &self,
        (bank, row_elements): (*const f32, usize),
        checkpoints: *const [f32],
        states: Vec<OwedState>,
    ) {
        let debt = Debt {
            row_elements,
            checkpoints,
            now: states.len(),
            states,
        };
        self.accounts().insert(bank.addr(), Account::Owing(debt));
    }

    /// What became of a bank.
    pub(crate) fn collect(&self, bank: *const f32) -> Collected {
        match self.accounts().remove(&bank.addr()) {
            None => Collected::Untouched(Vec::new()),
            Some(Account::Settled(states)) => Collected::Made(states),
            Some(Account::Owing(debt)) => Collected::Untouched(debt.states),
            Some(Account::Underway(rows)) => Collected::Lost(rows),
        }
    }

    /// Makes what is owed to the bank of an operator, before it reads any of it.
    pub(super) fn settle(
        &self,
        bank: Cells<'_>,
        threads: &dyn Parallel,
    ) -> Result<(), KernelError> {
        if let Some(debt) = self.open(bank)? {
            debt.make(bank, threads)?;
            self.close(bank, debt);
        }
        Ok(())
    }

    /// As [`Self::settle`], but for replays of states that one row of the step alone reads, which are deferred to it. The
    /// operator [closes](Self::close) a debt once it has read all.
    pub(super) fn settle_but(
        &self,
        bank: Cells<'_>,
        rows: &BankRows,
        deferred: &mut Deferred,
        threads: &dyn Parallel,
    ) -> Result<Option<Debt>, KernelError> {
        deferred.clear(rows.len());
        let Some(mut debt) = self.open(bank)? else {
            return Ok(None);
        };
        debt.defer(rows, deferred);
        debt.make(bank, threads)?;
        Ok(Some(debt))
    }

    /// What is owed to the bank of an operator, which makes it and then [closes](Self::close) the account.
    fn open(&self, bank: Cells<'_>) -> Result<Option<Debt>, KernelError> {
        let (mut accounts, address) = (self.accounts(), bank.as_ptr().addr());
        match accounts.remove(&address) {
            None => {
                accounts.insert(address, Account::Settled(Vec::new()));
                Ok(None)
            }
            Some(Account::Settled(states)) => {
                accounts.insert(address, Account::Settled(states));
                Ok(None)
            }
            Some(Account::Owing(debt)) => {
                let rows = debt.states.iter().map(|state| state.row).collect();
                accounts.insert(address, Account::Underway(rows));
                Ok(Some(debt))
            }
            Some(Account::Underway(rows)) => {
                accounts.insert(address, Account::Underway(rows));
                Err(KernelError::Lost)
            }
        }
    }

    /// Says that all is made.
    pub(super) fn close(&self, bank: Cells<'_>, debt: Debt) {
        let settled = Account::Settled(debt.states);
        self.accounts().insert(bank.as_ptr().addr(), settled);
    }

    fn accounts(&self) -> MutexGuard<'_, HashMap<usize, Account>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Debt {
    fn checkpoints(&self) -> &[f32] {
        // SAFETY: whoever called `owe` vouches for them until the operator has made the states.
        unsafe { &*self.checkpoints }
    }

    /// Defers the replays of states that one row of the step alone reads.
    fn defer(&mut self, rows: &BankRows, deferred: &mut Deferred) {
        let states = std::mem::take(&mut self.states);
        let (later, now): (Vec<_>, Vec<_>) = states.into_iter().partition(|state| {
            let mut readers = (0..rows.len()).filter(|row| rows.source(*row) == state.row);
            match (readers.next(), readers.next()) {
                (Some(row), None) => deferred.take(row, state, self.checkpoints()),
                _ => false,
            }
        });
        self.now = now.len();
        self.states = now;
        self.states.extend(later);
    }

    /// Makes the states that are not deferred, on several threads where that is worth it.
    fn make(&self, bank: Cells<'_>, threads: &dyn Parallel) -> Result<(), KernelError> {
        let (checkpoints, len) = (self.checkpoints(), self.row_elements);
        let states = self.states.get(..self.now).unwrap_or_default();
        // The states of one tensor are all made in the same way.
        let most = states.iter().map(|state| state.parts(len)).max();
        let most = most.unwrap_or(0);
        let cost = 4 * len / most.max(1);
        threads.run(states.len() * most, cost, &|item| {
            let (index, part) = (item / most, item % most);
            let Some(state) = states.get(index).filter(|state| part < state.parts(len)) else {
                return;
            };
            let elements = state.elements(part, len);
            let first = state.row * len + elements.start;
            // SAFETY: the rows are different ones, by the contract of `owe`, and the parts of a row do not overlap;
            // nothing else reaches the bank before this returns.
            let made = unsafe { bank.part_mut(first, elements.len()) };
            state.make_part(part, checkpoints, made);
        })
    }
}

/// Replays that a kernel does itself, part by part, each just before it reads the part: memory is then fetched once. The
/// transitions are copied out, as the step writes others in their place.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    /// By row of the step.
    states: Vec<Option<OwedState>>,
    transitions: Vec<f32>,
}

impl Deferred {
    /// For a step of so many rows.
    fn clear(&mut self, rows: usize) {
        self.states.clear();
        self.states.resize(rows, None);
        self.transitions.clear();
    }

    /// Takes a state over, if it is replayed.
    fn take(&mut self, row: usize, state: &OwedState, checkpoints: &[f32]) -> bool {
        let (Recipe::Replayed { by, kept, .. }, Some(place)) =
            (state.made, self.states.get_mut(row))
        else {
            return false;
        };
        let first = self.transitions.len();
        for transition in state.reads() {
            let transition = checkpoints.get(transition).unwrap_or_default();
            self.transitions.extend_from_slice(transition);
        }
        let apart = by.extents().1;
        *place = Some(OwedState {
            row: state.row,
            made: Recipe::Replayed {
                by,
                first,
                apart,
                kept,
            },
        });
        true
    }

    /// Whether the state that a row of the step reads is still to be made.
    pub(super) fn has(&self, row: usize) -> bool {
        self.states.get(row).is_some_and(Option::is_some)
    }

    /// Makes a part of the state that a row of the step reads, if it is still to be made: `state` is its elements.
    pub(super) fn make(&self, row: usize, part: usize, state: &mut [f32]) {
        if let Some(Some(owed)) = self.states.get(row) {
            owed.make_part(part, &self.transitions, state);
        }
    }
}

#[cfg(test)]
#[path = "owed_tests.rs"]
mod tests;
