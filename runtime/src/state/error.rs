//! What can go wrong with fixed state.

use super::select::SelectError;
use crate::device::DeviceError;
use crate::error::RunError;
use crate::ids::RequestId;

/// Why a pool of fixed state could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum PoolError {
    /// No slots, or fewer step rows than slots.
    #[error(
        "a pool of fixed state needs at least one slot and a step row per slot, got {slots} slots and {max_rows} rows"
    )]
    Extent {
        /// Requests that can be resident.
        slots: usize,
        /// Rows one step may have.
        max_rows: usize,
    },
    /// Row indices are int32 in the graph.
    #[error("{slots} slots give more bank rows than an int32 row index can name")]
    TooManySlots {
        /// Requests that can be resident.
        slots: usize,
    },
    /// Shape, form or width of a tensor that the pool cannot keep.
    #[error("fixed state {input} of layer {layer}: {key} is {found}, expected {expected}")]
    Tensor {
        /// Graph input name.
        input: String,
        /// Layer id.
        layer: u32,
        /// What is wrong.
        key: &'static str,
        /// What the pool needs.
        expected: String,
        /// What the specification says.
        found: String,
    },
    /// The host cannot read the checkpoints, and nothing else commits them.
    #[error(
        "fixed state {input} of layer {layer}: its checkpoints are in the memory of {device}, which the host cannot \
         touch, and there is no graph that commits a kept prefix there"
    )]
    NoCommit {
        /// Graph input name.
        input: String,
        /// Layer id.
        layer: u32,
        /// The device.
        device: &'static str,
    },
    /// The device refused the memory.
    #[error("fixed state {input}: {source}")]
    Device {
        /// Graph input name.
        input: String,
        /// The refusal.
        source: DeviceError,
    },
}

/// Why a reservation of fixed state, or a choice of what to keep, was refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum StateError {
    /// Every slot is taken: the admission can be tried again after a release.
    #[error("{needed} new requests need a slot, {free} are free")]
    NoFreeSlot {
        /// Slots asked for.
        needed: usize,
        /// Slots free.
        free: usize,
    },
    /// More rows than the staging was planned for.
    #[error("a step of {rows} rows, planned for at most {max_rows}")]
    TooManyRows {
        /// Rows asked for.
        rows: usize,
        /// Rows planned.
        max_rows: usize,
    },
    /// A request twice in one step, or an admission of a request that is resident.
    #[error("{0} already owns a slot or a row of this step")]
    Duplicate(RequestId),
    /// The handle was made by another pool.
    #[error("the slot handle of {0} belongs to another pool")]
    Foreign(RequestId),
    /// The slot was released, or given to another request, since the handle was made.
    #[error("the slot handle of {0} is stale")]
    Stale(RequestId),
    /// The row would capture more than its checkpoint outputs hold.
    #[error(
        "{request}: {tokens} tokens with {captured} captured, the checkpoint outputs hold {capacity}"
    )]
    Capture {
        /// Whose row.
        request: RequestId,
        /// Tokens the row runs.
        tokens: usize,
        /// Tokens to capture.
        captured: usize,
        /// Smallest checkpoint count of the model, 0 where a tensor has none.
        capacity: usize,
    },
    /// No such row in the step.
    #[error("row {row} of a step of {rows} rows")]
    UnknownRow {
        /// Row asked for.
        row: usize,
        /// Rows of the step.
        rows: usize,
    },
    /// What is kept of a row is decided once.
    #[error("the kept tokens of row {0} were decided before")]
    Twice(usize),
    /// The wanted prefix cannot be had.
    #[error("row {row}: {source}")]
    Select {
        /// Which row.
        row: usize,
        /// Why.
        source: SelectError,
    },
    /// A slot no longer is what the reservation found.
    #[error("the slot of {0} changed while it was reserved")]
    Changed(RequestId),
    /// The graph that makes the state of a kept prefix failed.
    #[error("fixed state tensor {tensor}: {source}")]
    Commit {
        /// Tensor, in manifest order.
        tensor: usize,
        /// What failed.
        source: RunError,
    },
    /// An operator failed while it made a state that was committed. Nobody knows what the row holds.
    #[error(
        "a state of fixed state tensor {tensor} was lost when an operator failed while it made it"
    )]
    Lost {
        /// Tensor, in manifest order.
        tensor: usize,
    },
    /// The host cannot reach the memory, or a row of it is not what the specification says.
    #[error("fixed state tensor {tensor}, row {row}: no such float32 row in host memory")]
    Memory {
        /// Tensor, in manifest order.
        tensor: usize,
        /// Bank row or step row.
        row: usize,
    },
}
