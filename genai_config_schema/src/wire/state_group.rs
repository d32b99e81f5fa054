//! `model.decoder.state_groups`, in both spellings.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    CheckpointAlignment, CheckpointForm, ElementType, StateDecay, StateLayout, StateOperator,
};

use super::wire;

/// What a state group holds, and in which spelling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StateKind {
    /// Key/value cache behind a block table.
    #[default]
    PagedKv,
    /// Fixed-size state (pawl spelling); `operator` says whose.
    Fixed,
    /// Convolution state (genai-0.18 spelling).
    FixedConv,
    /// Recurrent state (genai-0.18 spelling).
    FixedRecurrent,
}

wire! {
    /// One group of layers with the same kind of state.
    #[schemars(extend("required" = ["kind", "layer_ids"]))]
    pub struct StateGroup {
        /// What the group holds.
        #[schemars(extend("x-code" = "C2"))]
        pub kind: StateKind,
        /// The operator that owns a `fixed` state.
        pub operator: Option<StateOperator>,
        /// Key heads of Gated DeltaNet, needed to replay its transitions.
        #[schemars(range(min = 1), extend("x-code" = "C26"))]
        pub key_head_count: Option<u32>,
        /// What a transition of Gated DeltaNet decays by one factor (pawl spelling); absent means
        /// `per_head`.
        pub decay: Option<StateDecay>,
        /// Layers, each below `num_hidden_layers`, no repeats.
        #[schemars(length(min = 1), extend(
            "x-code" = "C6",
            "items" = {"type": "integer", "format": "uint32", "minimum": 0, "x-code": "C7"},
        ))]
        pub layer_ids: Vec<u32>,
        /// Extents of one row of a `fixed` state (pawl spelling): `[channels, kernel - 1]` of
        /// `causal_conv`, `[value_heads, value_dim, key_dim]` of `gated_delta_net`, `[tokens]` of
        /// `token_history`.
        #[schemars(extend("items" = {"type": "integer", "format": "uint64", "minimum": 1}))]
        pub row_shape: Vec<u64>,
        /// Element type of the state's tensors (pawl spelling); `int64` or `int32` for `token_history`.
        pub element_type: Option<ElementType>,
        /// The id that fills the `token_history` of a request that has run no token (pawl spelling), in
        /// the ids of the graph's operator; absent means 0. What resets a history within a text is the
        /// operator's: it sees every id that it looks back on.
        pub fresh_token_id: Option<u32>,
        /// How a `fixed` state meets the pool; absent means `rows`.
        pub state_layout: Option<StateLayout>,
        /// Names of the state's tensors (pawl spelling).
        pub bindings: Option<Bindings>,
        /// Checkpoint slots per step, `W`; 0 or absent for none.
        #[schemars(range(max = 8), extend("x-code" = "C16"))]
        pub checkpoint_count: Option<u32>,
        /// Where local tokens lie among the slots.
        #[schemars(extend("x-code" = "C17"))]
        pub checkpoint_alignment: Option<CheckpointAlignment>,
        /// What a slot holds.
        pub checkpoint_form: Option<CheckpointForm>,
        /// The graph, below the model folder, that makes the state of a kept prefix where the host
        /// cannot reach it (pawl spelling).
        #[schemars(extend("format" = "relative-path"))]
        pub commit_filename: Option<String>,
        /// Captured transitions (genai-0.18 spelling).
        pub state_update: Option<StateUpdate>,
    }

    /// Names of a group's tensors: `key` and `value`, or `state`.
    pub struct Bindings {
        /// Key cache `[num_blocks, block_size, kv_heads, head_dim]`.
        pub key: Option<Binding>,
        /// Value cache, like `key`.
        pub value: Option<Binding>,
        /// Fixed state; the leading axis is that of `state_layout`.
        pub state: Option<Binding>,
    }

    /// Names of one tensor, templates with one `%d`, the layer id.
    #[schemars(extend("required" = ["input", "output"]))]
    pub struct Binding {
        /// State before the step.
        #[schemars(extend("format" = "name-template"))]
        pub input: String,
        /// State after the step.
        #[schemars(extend("format" = "name-template"))]
        pub output: String,
        /// Checkpoints `[slots, rows, ...]`, in the group's form.
        #[schemars(extend("format" = "name-template"))]
        pub checkpoints: Option<String>,
    }

    /// `state_update`: transitions captured by a fixed group (genai-0.18 spelling).
    #[schemars(extend(
        "required" = ["capacity"],
        "x-retired" = [
            "kind", "capture_count", "active", "value", "decay", "key", "delta", "capsule",
        ],
    ))]
    pub struct StateUpdate {
        /// Transitions per step.
        #[schemars(range(min = 1, max = 8), extend("x-code" = "C20"))]
        pub capacity: u32,
        /// Whether they are used; absent means yes.
        pub enabled: Option<bool>,
        /// Key heads; `fixed_recurrent` only.
        #[schemars(range(min = 1), extend("x-code" = "C26"))]
        pub key_head_count: Option<u32>,
    }
}
