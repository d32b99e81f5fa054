//! The `genai_config.json` file format.

mod state_enums;

pub use state_enums::{CheckpointAlignment, CheckpointForm, StateLayout, StateOperator};
