//! From a Hugging Face checkpoint to ONNX with separate checkpoint outputs.
//!
//! [`build`] reads a checkpoint folder (`config.json` and safetensors), emits one graph for the model and
//! one for its multi-token prediction head, and writes them with their weights, `genai_config.json`
//! and the tokenizer's files into a staging folder beside the output. The caller looks at the
//! [`StagedExport`], for one by loading it, and publishes it; until then nothing is at the output, and
//! dropping it leaves nothing anywhere.
//!
//! ```
//! use pawl_builder::{BuildOptions, BuildRequest, CheckpointOption, build};
//!
//! # let checkpoint = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/checkpoints/tiny-python");
//! # let folder = tempfile::tempdir()?;
//! # let output = folder.path().join("tiny-python");
//! let mut options = BuildOptions::default();
//! options.checkpoints = CheckpointOption::State(4);
//! let staged = build(&BuildRequest::new(checkpoint, &output, options), &mut ())?;
//! assert!(staged.path().join("model.onnx").is_file());
//! assert!(!output.exists());
//!
//! let (output, report) = staged.publish()?;
//! println!("{}: {} bytes", output.display(), report.total_bytes);
//! assert!(output.join("genai_config.json").is_file());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it hangs together
//!
//! | module | what |
//! |---|---|
//! | `source`, `quantized` | headers and positioned reads of a checkpoint; conversion through buffers of a fixed size, also to 8 bits |
//! | `plan`, `target` | options resolved against a model; what a provider offers |
//! | `contract` | names, shapes and inputs that every graph has |
//! | `decoder`, `mtp`, `blocks`, `ops`, `graph` | emission of graphs as plain data |
//! | `commit` | graphs that make the state of a kept prefix, for targets whose memory the host cannot touch |
//! | `config` | `genai_config.json` |
//! | `onnx` | graphs as protobuf, weights as aligned data files |
//! | `stage`, `interrupt` | the staging folder, publishing, stopping, and what killed builds leave |

mod blocks;
mod build_request;
mod checkpoints;
mod commit;
mod config;
mod contract;
mod decoder;
mod error;
mod fixed_groups;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod graph;
mod interrupt;
mod limits;
mod mtp;
mod mtp_weights;
mod onnx;
mod ops;
mod options;
mod plan;
mod quantized;
mod report;
mod room;
mod rope;
mod source;
mod stage;
mod target;
#[cfg(test)]
mod testing;
mod wiring;

pub use build_request::{BuildRequest, Progress, StagedExport, build};
pub use error::BuildError;
pub use interrupt::Interrupt;
pub use mtp_weights::MtpWeights;
pub use options::{
    BuildOptions, CheckpointOption, Dtype, OptionsError, Spelling, Target, UnknownValue,
};
pub use report::{BuildReport, EffectiveOptions, ReportedFile, SkippedTensors};
pub use wiring::{HeadHidden, HeadOrder, MtpWiring};
