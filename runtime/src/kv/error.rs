//! What can go wrong with the paged cache.

use crate::device::DeviceError;
use crate::ids::RequestId;

/// Why the paged cache could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum KvPoolError {
    /// No blocks, or blocks without tokens, or more blocks than an int32 table can name.
    #[error("a paged cache of {blocks} blocks of {block_size} tokens is impossible")]
    Extent {
        /// Blocks asked for.
        blocks: usize,
        /// Tokens per block.
        block_size: usize,
    },
    /// The device refused the memory.
    #[error("paged cache {name}: {source}")]
    Device {
        /// Graph input name.
        name: String,
        /// The refusal.
        source: DeviceError,
    },
}

/// Why blocks could not be reserved, or a length not be committed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum KvError {
    /// Blocks are taken by others: the step can be tried again after a release.
    #[error("{needed} cache blocks needed, {free} are free")]
    OutOfBlocks {
        /// Blocks asked for.
        needed: usize,
        /// Blocks free.
        free: usize,
    },
    /// The request needs more blocks than there are: it can never run.
    #[error("{request} needs {needed} cache blocks, the cache has {total}")]
    Unserviceable {
        /// Whose row.
        request: RequestId,
        /// Blocks its tokens need.
        needed: usize,
        /// Blocks of the cache.
        total: usize,
    },
    /// A request twice in one step, or an admission of a request that has a table.
    #[error("{0} already has a block table or a row of this step")]
    Duplicate(RequestId),
    /// The request has no block table.
    #[error("{0} has no block table")]
    Unknown(RequestId),
    /// No such row in the step.
    #[error("row {row} of a step of {rows} rows")]
    UnknownRow {
        /// Row asked for.
        row: usize,
        /// Rows of the step.
        rows: usize,
    },
    /// The row has no such branch, or none was granted.
    #[error("candidate {candidate} of row {row}, which has {candidates}")]
    UnknownCandidate {
        /// Row of the step.
        row: usize,
        /// Candidate asked for: 0 is the row itself.
        candidate: usize,
        /// Candidates of the row, itself included.
        candidates: usize,
    },
    /// What is kept of a row is decided once.
    #[error("the kept tokens of row {0} were decided before")]
    Twice(usize),
    /// More tokens kept than reserved.
    #[error("row {row}: {kept} tokens kept of {tokens}")]
    KeptTooMany {
        /// Which row.
        row: usize,
        /// Tokens kept.
        kept: usize,
        /// Tokens reserved.
        tokens: usize,
    },
    /// A table no longer is what the reservation found.
    #[error("the block table of {0} changed while it was reserved")]
    Changed(RequestId),
    /// Positions that are not committed.
    #[error("{request}: {tokens} positions, {committed} are committed")]
    Beyond {
        /// Whose table.
        request: RequestId,
        /// Positions asked for.
        tokens: usize,
        /// Positions committed.
        committed: usize,
    },
    /// The host cannot reach the memory.
    #[error(
        "cache of layer {layer} of the manifest, block {block}: no such float32 block in host memory"
    )]
    Memory {
        /// Layer, in manifest order.
        layer: usize,
        /// Block.
        block: usize,
    },
}
