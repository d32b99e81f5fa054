//! Words of a state group.
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
    /// A bounded history of token ids, as n-gram embeddings look back on: a row is the last `N-1` ids,
    /// the latest last, `[N-1]`.
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

/// What a transition of Gated DeltaNet decays by one factor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StateDecay {
    /// All of a value head's state: `Hv` factors.
    #[default]
    PerHead,
    /// The column of one key element: `Hv * Dk` factors.
    PerKey,
}

/// Element type of a state tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ElementType {
    /// IEEE single precision.
    Float32,
    /// IEEE half precision.
    Float16,
    /// Brain float.
    Bfloat16,
    /// 8-bit signed integer.
    Int8,
    /// 32-bit signed integer.
    Int32,
    /// 64-bit signed integer.
    Int64,
}

impl ElementType {
    /// Bytes of one element.
    ///
    /// ```
    /// assert_eq!(genai_config_schema::ElementType::Bfloat16.size(), 2);
    /// ```
    #[must_use]
    pub const fn size(self) -> u64 {
        match self {
            Self::Int8 => 1,
            Self::Float16 | Self::Bfloat16 => 2,
            Self::Float32 | Self::Int32 => 4,
            Self::Int64 => 8,
        }
    }

    /// The word in the file.
    ///
    /// ```
    /// assert_eq!(genai_config_schema::ElementType::Bfloat16.as_str(), "bfloat16");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
            Self::Int8 => "int8",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
        }
    }
}

impl StateOperator {
    /// Axes of one row of its state.
    ///
    /// ```
    /// use genai_config_schema::StateOperator;
    ///
    /// assert_eq!(StateOperator::CausalConv.row_axes(), ["channels", "kernel - 1"]);
    /// ```
    #[must_use]
    pub const fn row_axes(self) -> &'static [&'static str] {
        match self {
            Self::CausalConv => &["channels", "kernel - 1"],
            Self::GatedDeltaNet => &["value_heads", "value_dim", "key_dim"],
            Self::TokenHistory => &["tokens"],
        }
    }
}
