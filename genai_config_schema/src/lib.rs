//! The `genai_config.json` file format.

mod error;
mod manifest;
mod read;
mod state_enums;
mod template;
pub mod wire;

pub use error::{ConfigCode, ConfigError, ConfigErrors};
pub use manifest::{Checkpoints, FixedTensor, Manifest, PagedGroup, PagedLayer, Spelling};
pub use state_enums::{CheckpointAlignment, CheckpointForm, StateLayout, StateOperator};
pub use wire::*;
