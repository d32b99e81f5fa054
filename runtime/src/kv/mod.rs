//! Paged key/value cache: a pool of blocks, a table per request, one reservation per step.
//!
//! Only a table's committed length decides what is valid, so a step that is dropped, or keeps a prefix, needs no copy:
//! it gives blocks back and leaves the length where it was or puts it where the prefix ends.

mod blocks;
mod branches;
mod candidate;
mod demand;
mod error;
mod fork;
mod image;
mod pool;
mod reservation;
#[cfg(test)]
mod tests;

pub(crate) use blocks::BlockId;
pub(crate) use demand::Blocks;
pub(crate) use error::KvError;
pub(crate) use pool::{BlockTable, KeysValues, KvPool};
pub(crate) use reservation::{KvReservation, KvRow, PagedBinding, blocks_for};
