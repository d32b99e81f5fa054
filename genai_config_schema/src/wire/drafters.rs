//! Graphs that propose tokens: `model.mtp`, `model.dflash2` and `model.dspark`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{RunOptions, SessionOptions, SharedInitializer, wire};

/// How a drafter proposes when the turn is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SampledProposal {
    /// No drafts.
    None,
    /// The most likely path.
    GreedyPath,
    /// A draw per position.
    Independent,
    /// A lattice of candidates.
    Lattice,
}

wire! {
    /// `model.mtp`: a multi-token-prediction head. Row `i` pairs token `i + 1` with the decoder's
    /// hidden row `i`.
    #[schemars(extend("required" = ["filename", "num_key_value_heads", "head_size"]))]
    pub struct Mtp {
        /// Whether the head is used; absent means yes.
        pub enabled: Option<bool>,
        /// The graph, below the model folder.
        #[schemars(extend("format" = "relative-path"))]
        pub filename: String,
        /// Attention layers of the head; absent means 1.
        #[schemars(range(min = 1, max = 1024))]
        pub num_hidden_layers: Option<u32>,
        /// Key/value heads.
        #[schemars(range(min = 1))]
        pub num_key_value_heads: u32,
        /// Width of an attention head.
        #[schemars(range(min = 1))]
        pub head_size: u32,
        /// Decoder output that feeds the head; absent means `hidden_states`.
        #[schemars(extend("format" = "tensor-name"))]
        pub main_hidden_states: Option<String>,
        /// Names of the graph's inputs.
        pub inputs: MtpInputs,
        /// Names of the graph's outputs.
        pub outputs: MtpOutputs,
        /// Weights shared with the decoder.
        pub shared_initializers: Vec<SharedInitializer>,
        /// Session settings.
        pub session_options: SessionOptions,
        /// Settings of every run.
        pub run_options: RunOptions,
    }

    /// `model.mtp.inputs`.
    pub struct MtpInputs {
        /// Packed token ids, int64 `[num_tokens]`.
        #[schemars(extend("format" = "tensor-name"))]
        pub input_ids: Option<String>,
        /// The decoder's (or the head's own) hidden rows, `[num_tokens, hidden]`.
        #[schemars(extend("format" = "tensor-name"))]
        pub hidden_states: Option<String>,
        /// Attention mask of a dense head.
        #[schemars(extend("format" = "tensor-name"))]
        pub attention_mask: Option<String>,
        /// Absolute positions, int64 `[num_tokens]`.
        #[schemars(extend("format" = "tensor-name"))]
        pub position_ids: Option<String>,
        /// Row bounds in the packed tokens, int32 `[rows + 1]`.
        #[schemars(extend("format" = "tensor-name"))]
        pub cumulative_sequence_lengths: Option<String>,
        /// The head's committed length, int32 `[rows]`.
        #[schemars(extend("format" = "tensor-name"))]
        pub past_sequence_lengths: Option<String>,
        /// The head's key/value blocks, int32 `[rows, max_blocks]`.
        #[schemars(extend("format" = "tensor-name"))]
        pub block_table: Option<String>,
        /// Host-side lengths for the attention planner.
        #[schemars(extend("format" = "tensor-name"))]
        pub attention_metadata: Option<String>,
        /// Packed indices of the tokens that get logits, int32 `[num_logits]`.
        #[schemars(extend("format" = "tensor-name"))]
        pub logits_indices: Option<String>,
        /// Key cache template.
        #[schemars(extend("format" = "name-template"))]
        pub past_key_names: Option<String>,
        /// Value cache template.
        #[schemars(extend("format" = "name-template"))]
        pub past_value_names: Option<String>,
    }

    /// `model.mtp.outputs`.
    pub struct MtpOutputs {
        /// Logits `[num_logits, vocab]`.
        #[schemars(extend("format" = "tensor-name"))]
        pub logits: Option<String>,
        /// Rows for the next chained draft, `[num_tokens, hidden]`.
        #[schemars(extend("format" = "tensor-name"))]
        pub hidden_states: Option<String>,
        /// Key cache template.
        #[schemars(extend("format" = "name-template"))]
        pub present_key_names: Option<String>,
        /// Value cache template.
        #[schemars(extend("format" = "name-template"))]
        pub present_value_names: Option<String>,
    }

    /// `model.dflash2` or `model.dspark`: a drafter that proposes a block at once.
    #[schemars(extend("required" = [
        "filename", "num_hidden_layers", "num_key_value_heads", "head_size", "block_size",
        "num_draft_tokens", "mask_token_id",
    ]))]
    pub struct BlockDrafter {
        /// The graph, below the model folder.
        #[schemars(extend("format" = "relative-path"))]
        pub filename: String,
        /// Attention layers.
        #[schemars(range(min = 1, max = 1024))]
        pub num_hidden_layers: u32,
        /// Key/value heads.
        #[schemars(range(min = 1))]
        pub num_key_value_heads: u32,
        /// Width of an attention head.
        #[schemars(range(min = 1))]
        pub head_size: u32,
        /// Tokens in a block.
        #[schemars(range(min = 2))]
        pub block_size: u32,
        /// Drafts per block: `block_size - 1` for dflash2, `block_size` for dspark.
        #[schemars(range(min = 1))]
        pub num_draft_tokens: u32,
        /// Candidates kept per position.
        #[schemars(range(min = 1))]
        pub selector_top_k: Option<u32>,
        /// Token id of a position to be filled.
        pub mask_token_id: u32,
        /// Tokens a query sees; absent for all.
        #[schemars(range(min = 1))]
        pub sliding_window: Option<u32>,
        /// Decoder output that feeds the drafter; absent means `aux_hidden_states`.
        #[schemars(extend("format" = "tensor-name"))]
        pub main_aux_hidden_states: Option<String>,
        /// Decoder layers whose rows it reads.
        pub aux_hidden_state_layers: Vec<u32>,
        /// How it proposes when the turn is sampled.
        pub sampled_proposal: Option<SampledProposal>,
        /// Older spelling of `sampled_proposal: independent`.
        pub independent_sampling: Option<bool>,
        /// Temperature of its own draws.
        #[schemars(extend("exclusiveMinimum" = 0))]
        pub sampling_temperature: Option<f32>,
        /// Nucleus of its own draws.
        #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1))]
        pub sampling_top_p: Option<f32>,
        /// Least probability of its own draws, relative to the largest.
        #[schemars(extend("minimum" = 0, "maximum" = 1))]
        pub sampling_min_p: Option<f32>,
        /// Names of the graph's inputs.
        pub inputs: BlockDrafterInputs,
        /// Names of the graph's outputs.
        pub outputs: BlockDrafterOutputs,
        /// Weights shared with the decoder.
        pub shared_initializers: Vec<SharedInitializer>,
        /// Session settings.
        pub session_options: SessionOptions,
        /// Settings of every run.
        pub run_options: RunOptions,
    }

    /// `inputs` of a block drafter.
    pub struct BlockDrafterInputs {
        /// Decoder rows of the layers read.
        #[schemars(extend("format" = "tensor-name"))]
        pub aux_hidden_states: Option<String>,
        /// Token ids.
        #[schemars(extend("format" = "tensor-name"))]
        pub input_ids: Option<String>,
        /// Embedded tokens.
        #[schemars(extend("format" = "tensor-name"))]
        pub inputs_embeds: Option<String>,
        /// Rows of the queries.
        #[schemars(extend("format" = "tensor-name"))]
        pub q_row_map: Option<String>,
        /// Rows of queries, keys and values.
        #[schemars(extend("format" = "tensor-name"))]
        pub qkv_row_map: Option<String>,
        /// Place of each row in its block.
        #[schemars(extend("format" = "tensor-name"))]
        pub block_row_index: Option<String>,
        /// Row bounds in the packed tokens, int32 `[rows + 1]`.
        #[schemars(extend("format" = "tensor-name"))]
        pub cumulative_sequence_lengths: Option<String>,
        /// The drafter's committed length, int32 `[rows]`.
        #[schemars(extend("format" = "tensor-name"))]
        pub past_sequence_lengths: Option<String>,
        /// The drafter's key/value blocks, int32 `[rows, max_blocks]`.
        #[schemars(extend("format" = "tensor-name"))]
        pub block_table: Option<String>,
        /// Host-side lengths for the attention planner.
        #[schemars(extend("format" = "tensor-name"))]
        pub attention_metadata: Option<String>,
        /// Key cache template.
        #[schemars(extend("format" = "name-template"))]
        pub past_key_names: Option<String>,
        /// Value cache template.
        #[schemars(extend("format" = "name-template"))]
        pub past_value_names: Option<String>,
        /// Key scale template.
        #[schemars(extend("format" = "name-template"))]
        pub past_key_scale_names: Option<String>,
        /// Value scale template.
        #[schemars(extend("format" = "name-template"))]
        pub past_value_scale_names: Option<String>,
    }

    /// `outputs` of a block drafter.
    pub struct BlockDrafterOutputs {
        /// Candidate tokens per position.
        #[schemars(extend("format" = "tensor-name"))]
        pub candidate_ids: Option<String>,
        /// Scores of the candidates.
        #[schemars(extend("format" = "tensor-name"))]
        pub scores: Option<String>,
        /// Key cache template.
        #[schemars(extend("format" = "name-template"))]
        pub present_key_names: Option<String>,
        /// Value cache template.
        #[schemars(extend("format" = "name-template"))]
        pub present_value_names: Option<String>,
        /// Key scale template.
        #[schemars(extend("format" = "name-template"))]
        pub present_key_scale_names: Option<String>,
        /// Value scale template.
        #[schemars(extend("format" = "name-template"))]
        pub present_value_scale_names: Option<String>,
    }
}
