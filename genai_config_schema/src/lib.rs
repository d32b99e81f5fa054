//! The `genai_config.json` file format: what a built model folder says about its graphs, their
//! inputs and outputs, their state, and how they are sampled and batched.
//!
//! [`GenaiConfig`] is the file, key for key; build one literally and [write](GenaiConfig::to_json)
//! it, or [read](GenaiConfig::read) one. Reading reports *everything* that is wrong with a file,
//! each [error](ConfigError) with a [code](ConfigCode) and a JSON path, and nothing is ignored: an
//! unknown key is an error with a suggestion. Paths of every section must stay inside the model
//! folder. [`GenaiConfig::manifest`] resolves the declared state to tensor names per layer.
//!
//! ```
//! use genai_config_schema::{GenaiConfig, StateOperator};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let text = include_str!("../tests/fixtures/pawl.json");
//! let config = GenaiConfig::from_json(text)?;
//! assert_eq!(config.model.vocab_size, 331);
//!
//! let manifest = config.manifest()?;
//! let delta = &manifest.fixed[3];
//! assert_eq!(delta.operator, StateOperator::GatedDeltaNet);
//! assert_eq!(delta.input, "past_key_values.0.recurrent_state");
//!
//! let broken = text.replace("\"layer_ids\": [1, 4]", "\"layer_ids\": [1, 7]");
//! let errors = GenaiConfig::from_json(&broken).unwrap_err();
//! assert_eq!(errors.errors[0].path, "model.decoder.state_groups[0].layer_ids[1]");
//! # Ok(())
//! # }
//! ```
//!
//! # Two spellings
//!
//! Each entry of `model.decoder.state_groups` declares the state of some layers. In the *pawl*
//! spelling a group names its tensors in `bindings`, and state of fixed size has the kind `fixed`.
//! The spelling of onnxruntime-genai 0.18 is read and written as well: kinds `fixed_conv` and
//! `fixed_recurrent`, names under `inputs` and `outputs`, captured transitions in `state_update`.
//! Keys of both in one file are an error; a file with paged groups only and no `bindings` is
//! genai's. Both resolve to the same [`Manifest`].
//!
//! A fixed group with `checkpoint_count` W > 0 has an output of W slots per step: `checkpoint_form`
//! says what a slot holds (`state`, or the `update` that leads to it), `checkpoint_alignment` which
//! slot a token has. `state_layout` says whether the operator sees a state row per batch row
//! (`rows`) or both banks and row indices (`bank`, which needs the inputs `read_rows` and
//! `write_rows`).
//!
//! `row_shape` and `element_type` of a group say how large its state is, so that memory can be
//! planned from this file before any weight or graph is there: `row_shape` are the extents of one
//! row of a fixed state (`[channels, kernel - 1]` of a convolution, `[value_heads, value_dim,
//! key_dim]` of Gated DeltaNet), and the geometry of a paged group is that of the decoder. Graphs
//! must agree with both where a file has them.
//!
//! A `token_history` holds the last ids of a request, the latest last, for operators that hash n-grams:
//! `[N - 1]` of `int64` or `int32`, `fresh_token_id` where there is none yet. A slot of its `update`
//! is the history after a token, so that every draft has its own. The ids are those that the operator
//! takes, and all of them as they came: where a text ends within the history, the operator resets.
//!
//! `commit_filename` names the graph that makes the state of a kept prefix where the host cannot
//! reach the state, one for all layers of a group. Its inputs are `bank`, both banks and the zero
//! row, `[bank_rows, row...]`; `checkpoints`, as the decoder wrote them; and int64 lists with an
//! entry per row to commit: `batch_rows`, the row of the step; `write_rows`, the row of the bank
//! that takes the state; and either `slots`, the checkpoint that holds it, or `read_rows`, the row
//! of the bank that holds the state before the step, and `kept`, the transitions to replay from
//! there. Its one output, `committed`, is `bank` with those rows written, and may be bound to the
//! memory of `bank`.
//!
//! # JSON Schema
//!
//! [`json_schema`] is committed as `schema.json` of this crate and drives the reader, so the two
//! cannot disagree. Sections for models that are not text decoders (encoders, vision, speech) and
//! `runtime_profiles` are not part of the format.
//!
//! # Example
//!
//! A hybrid model of five layers with checkpoints and a drafting head:
//!
//! ```json
#![doc = include_str!("../tests/fixtures/pawl.json")]
//! ```

mod check;
mod error;
mod manifest;
mod overlay;
mod parse;
mod path;
mod quoted;
mod read;
mod regular_file;
mod report;
mod rules;
mod schema;
mod state_enums;
mod suggest;
mod template;
mod wire;

pub use error::{ConfigCode, ConfigError, ConfigErrors};
pub use manifest::{Checkpoints, FixedTensor, Manifest, PagedGroup, PagedLayer, Spelling};
pub use parse::{MAX_BYTES, MAX_DEPTH, parse_strict};
pub use quoted::{MAX_LISTED, MAX_QUOTED, MAX_TOLD, counted, printable, quoted, shortened};
pub use regular_file::{
    confined, existing_parent, open_regular, read_regular, read_regular_text, regular_size,
};
pub use report::MAX_ERRORS;
pub use schema::json_schema;
pub use state_enums::{
    CheckpointAlignment, CheckpointForm, ElementType, StateDecay, StateLayout, StateOperator,
};
pub use wire::*;
