//! Dimensions that are known only when a step runs.

use crate::graph::ir::Dim;

/// Tokens of all rows of the step.
pub(crate) const TOKENS: Dim = Dim::Symbol("num_tokens");
/// Rows of the batch.
pub(crate) const ROWS: Dim = Dim::Symbol("rows");
/// Boundaries between rows, ends included.
pub(crate) const ROW_BOUNDARIES: Dim = Dim::Symbol("rows_plus_one");
/// Longest block table of a row.
pub(crate) const MAX_BLOCKS: Dim = Dim::Symbol("max_blocks");
/// Tokens that get logits.
pub(crate) const LOGITS: Dim = Dim::Symbol("num_logits");
/// Blocks of the key/value cache.
pub(crate) const BLOCKS: Dim = Dim::Symbol("num_blocks");
/// Tokens of a block.
pub(crate) const BLOCK_SIZE: Dim = Dim::Symbol("block_size");
/// Rows of both banks and the zero row.
pub(crate) const BANK_ROWS: Dim = Dim::Symbol("bank_rows");
/// Rows that are committed at once.
pub(crate) const COMMITS: Dim = Dim::Symbol("commits");
/// Checkpoint slots: none on a step that captures nothing.
pub(crate) const CHECKPOINT_SLOTS: Dim = Dim::Symbol("checkpoint_slots");
