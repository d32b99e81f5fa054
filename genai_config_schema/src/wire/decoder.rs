//! `model.decoder`.

use super::{RunOptions, SessionOptions, StateGroup, codec, wire};

wire! {
    /// `model.decoder`: the language model's graph, its names and its state.
    #[schemars(extend("required" = [
        "filename", "hidden_size", "num_attention_heads", "num_key_value_heads",
        "num_hidden_layers", "head_size",
    ]))]
    pub struct Decoder {
        /// The graph, below the model folder.
        #[schemars(extend("format" = "relative-path"))]
        pub filename: String,
        /// Width of a hidden row.
        #[schemars(range(min = 1))]
        pub hidden_size: u32,
        /// Query heads.
        #[schemars(range(min = 1))]
        pub num_attention_heads: u32,
        /// Key/value heads.
        #[schemars(range(min = 1))]
        pub num_key_value_heads: u32,
        /// Layers; every layer id is below it.
        #[schemars(range(min = 1, max = 1024))]
        pub num_hidden_layers: u32,
        /// Width of an attention head.
        #[schemars(range(min = 1))]
        pub head_size: u32,
        /// What each layer is, such as `full_attention`; empty or one entry per layer.
        pub layer_types: Vec<String>,
        /// Columns of a convolution's state, `kernel - 1`.
        #[schemars(range(min = 1))]
        pub conv_cache_size: Option<u32>,
        /// Session settings.
        pub session_options: SessionOptions,
        /// Settings of every run.
        pub run_options: RunOptions,
        /// Names of the graph's inputs.
        pub inputs: DecoderInputs,
        /// Names of the graph's outputs.
        pub outputs: DecoderOutputs,
        /// Layers whose attention looks back a limited distance.
        pub sliding_window: Option<SlidingWindow>,
        /// Whether one step may capture checkpoints for some rows and not for others.
        pub captures_in_mixed_steps: Option<bool>,
        /// Every piece of state that a step reads and writes.
        #[schemars(length(min = 1, max = 32), extend("x-code" = "C1"))]
        pub state_groups: Vec<StateGroup>,
        /// Transitions captured per step, genai-0.18 spelling; 0 is off.
        #[schemars(range(max = 8), extend("x-code" = "C20"))]
        pub state_update_capacity: Option<u32>,
        /// Weights that several sessions map from one copy.
        pub shared_initializers: Vec<SharedInitializer>,
    }

    /// `model.decoder.inputs`: the graph's input names. `*_names` are templates with one `%d`,
    /// the layer id.
    pub struct DecoderInputs {
        /// Packed token ids, int64 `[num_tokens]`.
        #[schemars(extend("format" = "tensor-name"))]
        pub input_ids: Option<String>,
        /// Embedded tokens `[num_tokens, hidden]`.
        #[schemars(extend("format" = "tensor-name"))]
        pub inputs_embeds: Option<String>,
        /// Attention mask of a dense graph.
        #[schemars(extend("format" = "tensor-name"))]
        pub attention_mask: Option<String>,
        /// Absolute positions, int64 `[num_tokens]`.
        #[schemars(extend("format" = "tensor-name"))]
        pub position_ids: Option<String>,
        /// Row bounds in the packed tokens, int32 `[rows + 1]`.
        #[schemars(extend("format" = "tensor-name"))]
        pub cumulative_sequence_lengths: Option<String>,
        /// Committed tokens before the step, int32 `[rows]`.
        #[schemars(extend("format" = "tensor-name"))]
        pub past_sequence_lengths: Option<String>,
        /// Key/value blocks, int32 `[rows, max_blocks]`, -1 where unmapped.
        #[schemars(extend("format" = "tensor-name"))]
        pub block_table: Option<String>,
        /// Key/value blocks of sliding-window layers.
        #[schemars(extend("format" = "tensor-name"))]
        pub block_table_windowed: Option<String>,
        /// Host-side lengths for the attention planner.
        #[schemars(extend("format" = "tensor-name"))]
        pub attention_metadata: Option<String>,
        /// Packed indices of the tokens that get logits, int32 `[num_logits]`.
        #[schemars(extend("format" = "tensor-name"))]
        pub logits_indices: Option<String>,
        /// Hidden rows from another graph.
        #[schemars(extend("format" = "tensor-name"))]
        pub hidden_states: Option<String>,
        /// Past length of a dense graph.
        #[schemars(extend("format" = "tensor-name"))]
        pub past_sequence_length: Option<String>,
        /// Past length of a dense graph with one cache.
        #[schemars(extend("format" = "tensor-name"))]
        pub past_key_values_length: Option<String>,
        /// Current length of a dense graph.
        #[schemars(extend("format" = "tensor-name"))]
        pub current_sequence_length: Option<String>,
        /// Total length of a dense graph.
        #[schemars(extend("format" = "tensor-name"))]
        pub total_sequence_length: Option<String>,
        /// Beam of each cache row.
        #[schemars(extend("format" = "tensor-name"))]
        pub cache_indirection: Option<String>,
        /// Bank row each batch row reads, int32 `[rows]` (bank layout).
        #[schemars(extend("format" = "tensor-name"))]
        pub read_rows: Option<String>,
        /// Bank row each batch row writes, int32 `[rows]`, -1 for none (bank layout).
        #[schemars(extend("format" = "tensor-name"))]
        pub write_rows: Option<String>,
        /// Tokens captured per row, int32 `[rows]`.
        #[schemars(extend("format" = "tensor-name", "x-code" = "C22"))]
        pub state_update_capture_count: Option<String>,
        /// Whether this step captures, int32 `[1]` on the host.
        #[schemars(extend("format" = "tensor-name", "x-code" = "C23"))]
        pub state_update_active: Option<String>,
        /// Key cache.
        #[schemars(extend("format" = "name-template"))]
        pub past_key_names: Option<String>,
        /// Value cache.
        #[schemars(extend("format" = "name-template"))]
        pub past_value_names: Option<String>,
        /// Scales of a quantised key cache.
        #[schemars(extend("format" = "name-template"))]
        pub past_key_scale_names: Option<String>,
        /// Scales of a quantised value cache.
        #[schemars(extend("format" = "name-template"))]
        pub past_value_scale_names: Option<String>,
        /// Joint key/value cache of a dense graph.
        #[schemars(extend("format" = "name-template"))]
        pub past_names: Option<String>,
        /// Convolution state.
        #[schemars(extend("format" = "name-template"))]
        pub past_conv_names: Option<String>,
        /// Recurrent state.
        #[schemars(extend("format" = "name-template"))]
        pub past_recurrent_names: Option<String>,
    }

    /// `model.decoder.outputs`: the graph's output names. `*_names` are templates with one `%d`,
    /// the layer id.
    pub struct DecoderOutputs {
        /// Logits `[num_logits, vocab]`.
        #[schemars(extend("format" = "tensor-name"))]
        pub logits: Option<String>,
        /// Rows after the final norm, `[num_tokens, hidden]`.
        #[schemars(extend("format" = "tensor-name"))]
        pub hidden_states: Option<String>,
        /// Rows of the layers a block drafter reads.
        #[schemars(extend("format" = "tensor-name"))]
        pub aux_hidden_states: Option<String>,
        /// Key cache.
        #[schemars(extend("format" = "name-template"))]
        pub present_key_names: Option<String>,
        /// Value cache.
        #[schemars(extend("format" = "name-template"))]
        pub present_value_names: Option<String>,
        /// Scales of a quantised key cache.
        #[schemars(extend("format" = "name-template"))]
        pub present_key_scale_names: Option<String>,
        /// Scales of a quantised value cache.
        #[schemars(extend("format" = "name-template"))]
        pub present_value_scale_names: Option<String>,
        /// Joint key/value cache of a dense graph.
        #[schemars(extend("format" = "name-template"))]
        pub present_names: Option<String>,
        /// Convolution state.
        #[schemars(extend("format" = "name-template"))]
        pub present_conv_names: Option<String>,
        /// Recurrent state.
        #[schemars(extend("format" = "name-template"))]
        pub present_recurrent_names: Option<String>,
        /// Captured convolution inputs `[rows, capacity, C]`.
        #[schemars(extend("format" = "name-template"))]
        pub state_update_conv_value_names: Option<String>,
        /// Captured recurrent transitions `[rows, capacity * (Hv + Hk*Dk + Hv*Dv)]`.
        #[schemars(extend("format" = "name-template"))]
        pub state_update_recurrent_capsule_names: Option<String>,
    }

    /// `model.decoder.sliding_window`: layers whose attention looks back a limited distance.
    #[schemars(extend("required" = ["window_size"]))]
    pub struct SlidingWindow {
        /// Tokens a query sees.
        #[schemars(range(min = 1))]
        pub window_size: u32,
        /// Token id of padding.
        pub pad_value: Option<i32>,
        /// Side of the padding, `left` or `right`.
        #[schemars(extend("enum" = ["left", "right"]))]
        pub alignment: Option<String>,
        /// Whether the runtime drops old keys and values.
        pub slide_key_value_cache: Option<bool>,
        /// Whether the runtime feeds the prompt window by window.
        pub slide_inputs: Option<bool>,
        /// Layers it applies to; empty for all.
        pub layers: Vec<u32>,
        /// Extra cache columns.
        pub cache_slack: Option<u32>,
    }

    /// One entry of `shared_initializers`: where a weight lies, so that sessions share one copy.
    #[schemars(extend(
        "required" = ["name", "data_file", "offset", "length", "data_type", "shape"]
    ))]
    pub struct SharedInitializer {
        /// Initializer name in the graph.
        #[schemars(extend("format" = "tensor-name"))]
        pub name: String,
        /// External data file, below the model folder.
        #[schemars(extend("format" = "relative-path"))]
        pub data_file: String,
        /// First byte; a string of digits in the file.
        #[serde(with = "codec::decimal")]
        #[schemars(with = "String", extend("format" = "uint64", "pattern" = "^[0-9]+$"))]
        pub offset: u64,
        /// Bytes; a string of digits in the file.
        #[serde(with = "codec::decimal")]
        #[schemars(with = "String", extend("format" = "uint64", "pattern" = "^[0-9]+$"))]
        pub length: u64,
        /// ONNX element type number: 1 float32, 10 float16, 16 bfloat16, and so on.
        pub data_type: u32,
        /// Extents.
        pub shape: Vec<u64>,
    }
}
