//! `pawl::PagedAttention`: causal attention over a block-table key/value cache.

mod kernel;
mod operator;
mod plan;
mod project;

pub(super) use operator::PagedAttention;
