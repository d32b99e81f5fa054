//! Which requests run in the next step, and how many tokens of each. Pure: views in, a plan out.
//!
//! * **Decode first.** Every decoding request runs its one token before any prefill gets a token.
//! * **Prefill never starves.** While a prefill can run, a quarter of the tokens of a step (at least one) and one row
//!   are kept for it. Where a step has room for one row or one token only, whoever has waited longest runs.
//! * **Drafts come last.** They use tokens that no selected row needs and never cost a row its place.
//! * **Branches come after drafts.** They use rows, tokens and free blocks that no row and no draft needs, and are given
//!   whole or not at all, in order. Reserving the step takes every row's own blocks first, and whatever a branch takes is
//!   given back, or is the request's own growth, before anybody else asks: so branches need no promise and break none.
//! * **Growth never fails.** The cache grows block by block, but a request is admitted only when the blocks of *all*
//!   residents at their ceilings, its own included, fit the caches. There is no preemption.
//! * **Kept states count.** A state that outlived its request holds its slot and its blocks, the draft head's included. The request that continues it
//!   takes them over and needs only what it will grow by. Evicting kept states for others is the caller's business.
//! * **Deferral is bounded.** A prompt that does not fit yet does not hide later ones that do, until it has been
//!   overtaken [`Limits::max_overtakes`] times; then nothing is admitted before it.

mod branches;
mod limits;
mod plan;
#[cfg(test)]
mod tests;

pub(crate) use limits::{Held, Limits, RequestView};
pub(crate) use plan::{Deferral, RowPlan, StepPlan, plan};
