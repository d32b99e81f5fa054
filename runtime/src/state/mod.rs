//! Fixed state: what a request keeps in a row of constant size, however many tokens it has seen.
//!
//! Each tensor has two banks and a zero row. Operators read a slot's active row (a fresh request's read the zero row) and
//! write the inactive one; publishing flips, or notes that the state of a kept prefix is owed, to be made over the active row.
//! Words, invariants and a drawing are in `manual::state`.
//!
//! * [`StatePool`] owns the memory and the slots; [`StateReservation`] is one step's claim on them.
//! * [`select`] says where the state after a kept prefix is; `capture` makes it.
//! * [`audit`] checks the invariants over a snapshot of everything a composite transaction keeps.

pub(crate) mod audit;
mod branches;
mod capture;
mod commit;
mod error;
mod handle;
mod image;
mod layout;
mod partial;
mod pool;
mod reservation;
mod select;
mod slot;
#[cfg(test)]
pub(crate) mod test_vectors;
#[cfg(test)]
mod tests;

pub(crate) use commit::trial;
pub(crate) use error::{PoolError, StateError};
pub(crate) use handle::SlotHandle;
pub(crate) use image::RowBytes;
pub(crate) use pool::{Entry, StatePool};
pub(crate) use reservation::{FixedBinding, FixedRow, StateReservation};
#[cfg(test)]
pub(crate) use select::SelectError;
#[cfg(test)]
pub(crate) use slot::Bank;
pub(crate) use slot::Slot;
