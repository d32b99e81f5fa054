//! Selection, replay, and what a pool refuses. Commits are tested with the transaction that alone can make them.

mod pool;
mod replay;
mod select;
