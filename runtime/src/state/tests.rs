//! Selection, replay, commits by the host and by graphs, and what a pool refuses. Whole steps are tested with the
//! transaction that alone can make them.

mod commit;
mod pool;
mod replay;
mod select;
