//! The `genai_config.json` file format.

mod check;
mod error;
mod manifest;
mod overlay;
mod parse;
mod path;
mod read;
mod report;
mod rules;
mod schema;
mod state_enums;
mod suggest;
mod template;
mod wire;

pub use error::{ConfigCode, ConfigError, ConfigErrors};
pub use manifest::{Checkpoints, FixedTensor, Manifest, PagedGroup, PagedLayer, Spelling};
pub use parse::{MAX_BYTES, MAX_DEPTH};
pub use report::MAX_ERRORS;
pub use schema::json_schema;
pub use state_enums::{CheckpointAlignment, CheckpointForm, StateLayout, StateOperator};
pub use wire::*;
