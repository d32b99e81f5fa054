//! How the model is used: `search`, `speculative` and `engine`.

use super::{SampledProposal, wire};

wire! {
    /// `search`: sampling defaults of a request.
    pub struct Search {
        /// Sample; absent or false takes the most likely token.
        pub do_sample: Option<bool>,
        /// Divides the logits; 0 means greedy.
        #[schemars(extend("minimum" = 0))]
        pub temperature: Option<f32>,
        /// Keep the k most likely tokens; 0 keeps all.
        pub top_k: Option<u32>,
        /// Keep the smallest set with this probability; 0 keeps all.
        #[schemars(extend("minimum" = 0, "maximum" = 1))]
        pub top_p: Option<f32>,
        /// Keep tokens with at least this share of the largest probability.
        #[schemars(extend("minimum" = 0, "maximum" = 1))]
        pub min_p: Option<f32>,
        /// Divides the score of tokens seen.
        #[schemars(extend("exclusiveMinimum" = 0))]
        pub repetition_penalty: Option<f32>,
        /// Shortest sequence, prompt included.
        pub min_length: Option<u32>,
        /// Longest sequence, prompt included; 0 or absent means `context_length`.
        pub max_length: Option<u32>,
        /// Seed; -1 draws one.
        #[schemars(extend("minimum" = -1))]
        pub random_seed: Option<i64>,
        /// Tokens of a prefill chunk.
        #[schemars(range(min = 1))]
        pub chunk_size: Option<u32>,
        /// Sequences of a dense batch.
        #[schemars(range(min = 1, max = 32))]
        pub batch_size: Option<u32>,
        /// Beams.
        #[schemars(range(min = 1, max = 32))]
        pub num_beams: Option<u32>,
        /// Beams returned, at most `num_beams`.
        #[schemars(range(min = 1, max = 32))]
        pub num_return_sequences: Option<u32>,
        /// Exponent of the length in a beam's score.
        pub length_penalty: Option<f32>,
        /// Length of n-grams that may not repeat; 0 for none.
        pub no_repeat_ngram_size: Option<u32>,
        /// Whether beams stop at the first finished set.
        pub early_stopping: Option<bool>,
        /// Penalty between groups of beams.
        pub diversity_penalty: Option<f32>,
        /// Whether a dense cache is updated in place.
        pub past_present_share_buffer: Option<bool>,
    }

    /// `speculative`: drafting defaults.
    pub struct Speculative {
        /// Most drafts per step; absent means 4.
        #[schemars(range(min = 1, max = 16))]
        pub max_draft_tokens: Option<u32>,
        /// Tokens matched by n-gram lookup: 0 for none, else 2 to 16.
        #[schemars(range(max = 16))]
        pub ngram_size: Option<u32>,
        /// Whether lookup goes on from its own drafts.
        pub ngram_chained_lookup: Option<bool>,
        /// Start and floor of the adaptive width; 0 for none.
        #[schemars(range(max = 16))]
        pub min_adaptive_k: Option<u32>,
        /// Whether a step is skipped after three rounds without an accepted draft.
        pub cooldown: Option<bool>,
        /// How drafters propose when the turn is sampled.
        pub sampled_proposal: Option<SampledProposal>,
        /// Temperature of the drafters' draws.
        #[schemars(extend("exclusiveMinimum" = 0))]
        pub sampling_temperature: Option<f32>,
        /// Nucleus of the drafters' draws.
        #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1))]
        pub sampling_top_p: Option<f32>,
        /// Least probability of the drafters' draws, relative to the largest.
        #[schemars(extend("minimum" = 0, "maximum" = 1))]
        pub sampling_min_p: Option<f32>,
    }

    /// `engine`: batching, dynamic or static.
    pub struct Engine {
        /// Packed batches over a paged cache.
        pub dynamic_batching: Option<DynamicBatching>,
        /// Dense batches.
        pub static_batching: Option<StaticBatching>,
    }

    /// `engine.dynamic_batching`.
    pub struct DynamicBatching {
        /// Tokens of a key/value block.
        #[schemars(range(min = 1), extend("x-code" = "C32"))]
        pub block_size: Option<u32>,
        /// Key/value blocks; absent lets the runtime choose.
        #[schemars(range(min = 1), extend("x-code" = "C32"))]
        pub num_blocks: Option<u32>,
        /// Share of free device memory for the cache.
        #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1, "x-code" = "C32"))]
        pub gpu_utilization_factor: Option<f32>,
        /// Most requests per step.
        #[schemars(range(min = 1), extend("x-code" = "C32"))]
        pub max_batch_size: Option<u32>,
        /// Most tokens per step.
        #[schemars(range(min = 1), extend("x-code" = "C32"))]
        pub max_scheduled_tokens: Option<u32>,
        /// Whether requests share the state of a common prefix.
        pub prefix_caching: Option<bool>,
        /// Snapshots kept for a dflash2 drafter.
        #[schemars(extend("x-code" = "C32"))]
        pub dflash2_max_snapshots: Option<u32>,
    }

    /// `engine.static_batching`.
    pub struct StaticBatching {
        /// Sequences per batch.
        #[schemars(range(min = 1))]
        pub max_batch_size: Option<u32>,
    }
}
