//! What a language model architecture is: layer plan, dimensions, weight names. No graphs, no devices, no files.
//!
//! [`describe`] turns a checkpoint's settings and tensor headers into a [`ModelDescription`]: plain data that says what
//! every layer computes and where each weight lies. Whoever writes a graph reads nothing else.
//!
//! | `model_type` | what |
//! |---|---|
//! | `qwen3_5_text`, `qwen3_5` | Gated DeltaNet and gated attention, optional drafting head; alone or beside a vision tower |
//! | `lfm2` | gated short convolutions and attention |
//! | `llama` | attention |
//! | `qwen3` | attention with norms on query and key heads |
//!
//! # What decides
//!
//! * Semantics are those of Hugging Face transformers, and files of its versions 4 and 5 are both read.
//! * The checkpoint decides over the settings where the two can differ: whether the output projection is tied, how
//!   names start, and the head size or MLP width where the settings leave it open.
//! * Unknown settings are tolerated. Settings that change what is computed, in a way a description cannot say, are
//!   refused by name. So are tensors inside the layers that nothing uses, such as a bias that the settings do not declare
//!   or a layer beyond the last one. Other tensors that nothing uses (a vision tower, rotary frequencies) are reported in
//!   [`ModelDescription::skipped`].
//!
//! # Adding an architecture
//!
//! 1. Make a folder `src/<name>/` whose `mod.rs` has a `pub(crate) const ARCHITECTURE: Architecture`: the name, the
//!    values of `model_type` that mean it, and a function that describes a checkpoint. `src/llama` is the shortest
//!    example, `src/qwen3_5` the longest.
//! 2. Add the constant to the table in `src/registry.rs` (and `mod <name>;` here). Nothing else names architectures.
//!
//! The function reads settings with `Config` (which names file, key and what was expected in its errors), refuses
//! what it does not support with a table of `Rule`s, and asks `Tensors` for each weight by name and shape. `Tensors`
//! collects every mismatch and reports what is left over. The parts most families share (`Dims`, `PlainAttention`,
//! `mlp`, `rope`, tying, special tokens) are in `src/decoder.rs` and beside it. A new kind of [`Mixer`] is a new
//! struct in `src/description.rs`, and graph writers will not compile until they handle it.

mod config;
mod decoder;
mod description;
mod error;
pub mod limits;
mod refuse;
mod registry;
mod rope;
mod tensors;
mod tokens;

mod lfm2;
mod llama;
mod qwen3;
mod qwen3_5;

pub use description::{
    Attention, CheckpointInfo, GatedDelta, Layer, Mixer, Mlp, ModelDescription, MtpHead, Norm,
    Rope, ShortConv, Skipped, SpecialTokens, Transform, Weight, WeightPart,
};
pub use error::{DescribeError, Refusal, TensorProblem};
pub use registry::model_types;

/// Describes a checkpoint: what its model computes and where every weight lies.
///
/// Costs no more than the settings and tensor headers are long; reads no weights.
///
/// ```
/// use std::collections::BTreeMap;
/// use pawl_models::{CheckpointInfo, Mixer, describe};
///
/// let config = serde_json::json!({
///     "model_type": "llama", "vocab_size": 32, "hidden_size": 8, "intermediate_size": 12,
///     "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
///     "max_position_embeddings": 64, "eos_token_id": [2, 3], "tie_word_embeddings": true,
/// });
/// let tensors = BTreeMap::from([
///     ("model.embed_tokens.weight".to_owned(), vec![32, 8]),
///     ("model.layers.0.input_layernorm.weight".to_owned(), vec![8]),
///     ("model.layers.0.self_attn.q_proj.weight".to_owned(), vec![8, 8]),
///     ("model.layers.0.self_attn.k_proj.weight".to_owned(), vec![4, 8]),
///     ("model.layers.0.self_attn.v_proj.weight".to_owned(), vec![4, 8]),
///     ("model.layers.0.self_attn.o_proj.weight".to_owned(), vec![8, 8]),
///     ("model.layers.0.post_attention_layernorm.weight".to_owned(), vec![8]),
///     ("model.layers.0.mlp.gate_proj.weight".to_owned(), vec![12, 8]),
///     ("model.layers.0.mlp.up_proj.weight".to_owned(), vec![12, 8]),
///     ("model.layers.0.mlp.down_proj.weight".to_owned(), vec![8, 12]),
///     ("model.norm.weight".to_owned(), vec![8]),
/// ]);
/// let mut checkpoint = CheckpointInfo { config, generation_config: None, tensors };
///
/// let model = describe(&checkpoint)?;
/// assert_eq!(model.tokens.eos, [2, 3]);
/// assert!(model.output.is_none(), "tied to the embedding");
/// let Mixer::Attention(attention) = &model.layers[0].mixer else { unreachable!() };
/// assert_eq!((attention.head_dim, attention.kv_heads), (4, 1));
///
/// checkpoint.tensors.remove("model.norm.weight");
/// let error = describe(&checkpoint).unwrap_err();
/// assert!(error.to_string().contains("model.norm.weight: expected [8], found no such tensor"));
/// # Ok::<(), pawl_models::DescribeError>(())
/// ```
///
/// # Errors
/// [`DescribeError`]: the architecture is unknown, settings have values they cannot have or that are not supported,
/// or tensors are absent or have other shapes than the settings ask for.
pub fn describe(checkpoint: &CheckpointInfo) -> Result<ModelDescription, DescribeError> {
    registry::describe(checkpoint)
}
