//! Fuzz targets: functions that take any bytes and panic only where Pawl is wrong.
//!
//! `cargo xtask fuzz TARGET --seconds N` runs one. Inputs that showed something are in `corpus/TARGET`; every run begins
//! with them, and ordinary tests replay them: those of this package, and those of the two packages whose targets look
//! inside (`pawl-builder` and `pawl`, module `fuzzing`).

mod chat_template;
mod genai_config;

pub use chat_template::chat_template;
pub use genai_config::genai_config;
#[cfg(feature = "libfuzzer")]
pub use {
    pawl::fuzzing::{onnx_graph, saved_state, step_script},
    pawl_builder::fuzzing::{hugging_face_config, safetensors_header},
};
