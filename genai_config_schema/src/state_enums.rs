//! Words of a fixed-state group.
#![allow(
    clippy::exhaustive_enums,
    reason = "these enums list what the file format knows; readers match all of it"
)]

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operator that owns a fixed state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StateOperator {
    /// Causal convolution: a row is the last `kernel - 1` input samples, `[C, K-1]`.
    CausalConv,
    /// Gated DeltaNet: a row is the recurrent state, `[Hv, Dv, Dk]`, value-major.
    GatedDeltaNet,
    /// A history of token ids.
    TokenHistory,
}

/// How an operator meets the pool of fixed state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StateLayout {
    /// One state row per batch row.
    Rows,
    /// Both banks and a zero row in one tensor, with row indices.
    Bank,
}

/// Where a token's checkpoint lies among the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointAlignment {
    /// Slot `t` holds local token `t`.
    Left,
    /// Slot `W - n + t` holds local token `t` of `n`.
    Right,
}

/// What a checkpoint slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointForm {
    /// The full state after the token.
    State,
    /// The transition of the token, replayed from the committed state.
    Update,
}
