//! `pawl::PagedAttention`: causal attention over a block-table key/value cache.

mod attend;
mod kernel;
mod operator;
mod plan;
mod project;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

pub(super) use operator::PagedAttention;
