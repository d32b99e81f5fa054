//! The root and `model`.

use super::{BlockDrafter, Decoder, Engine, Mtp, Search, Speculative, codec, wire};

wire! {
    /// A whole `genai_config.json`.
    #[schemars(title = "genai_config.json", extend("required" = ["model"]))]
    pub struct GenaiConfig {
        /// The model: sizes, token ids and its graphs.
        pub model: Model,
        /// Sampling defaults.
        pub search: Search,
        /// Speculative decoding defaults.
        pub speculative: Speculative,
        /// Batching.
        pub engine: Engine,
    }

    /// `model`: sizes, token ids and the graphs.
    #[schemars(extend("required" = ["type", "vocab_size", "context_length", "decoder"]))]
    pub struct Model {
        /// Architecture name, the key `type` of the file. Informational: the declared state
        /// decides what runs.
        #[serde(rename = "type")]
        pub kind: String,
        /// Folder of the tokenizer files below the model folder; absent or empty means the model
        /// folder itself.
        #[schemars(extend("format" = "folder-path"))]
        pub tokenizer_dir: Option<String>,
        /// Width of the logits, tokens.
        #[schemars(range(min = 1))]
        pub vocab_size: u32,
        /// Longest sequence, tokens.
        #[schemars(range(min = 1))]
        pub context_length: u32,
        /// Beginning of sequence.
        pub bos_token_id: Option<u32>,
        /// End of sequence; a single number in the file is read as a list of one.
        #[serde(deserialize_with = "codec::one_or_many::deserialize")]
        #[schemars(extend("type" = ["integer", "array"], "format" = "uint32", "minimum" = 0))]
        pub eos_token_id: Vec<u32>,
        /// Padding.
        pub pad_token_id: Option<u32>,
        /// Separator.
        pub sep_token_id: Option<u32>,
        /// First token of a decoder that is not prompted.
        pub decoder_start_token_id: Option<u32>,
        /// Beginning of a tool call.
        pub bot_token_id: Option<u32>,
        /// End of a tool call.
        pub eot_token_id: Option<u32>,
        /// Beginning of reasoning.
        pub bor_token_id: Option<u32>,
        /// End of reasoning.
        pub eor_token_id: Option<u32>,
        /// The language model.
        pub decoder: Decoder,
        /// Multi-token-prediction head.
        pub mtp: Option<Mtp>,
        /// DFlash block drafter.
        pub dflash2: Option<BlockDrafter>,
        /// DSpark block drafter.
        pub dspark: Option<BlockDrafter>,
    }
}
