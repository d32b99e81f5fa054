//! What was built.

use serde::Serialize;

use crate::mtp_weights::MtpWeights;
use crate::options::{CheckpointOption, Dtype, Spelling, Target};
use crate::wiring::MtpWiring;

/// What was built: files, sizes, options in effect, and what its user should know.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct BuildReport {
    /// The `model_type` of the checkpoint.
    pub model_type: String,
    /// The registry entry that described it.
    pub architecture: &'static str,
    /// Elements of all distinct weights in the export.
    pub parameters: u64,
    /// Every file of the export, in order of names.
    pub files: Vec<ReportedFile>,
    /// Sum of the files' sizes in bytes.
    pub total_bytes: u64,
    /// Tensors of the checkpoint that are not in the export.
    pub skipped: Vec<SkippedTensors>,
    /// Things that did not stop the build.
    pub warnings: Vec<String>,
    /// The options in effect.
    pub options: EffectiveOptions,
}

/// One file of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ReportedFile {
    /// Name in the model folder.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// Tensors of the checkpoint that are not in the export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SkippedTensors {
    /// Common start of their names.
    pub prefix: String,
    /// How many they are.
    pub tensors: u64,
    /// Why.
    pub reason: String,
}

/// Options after defaults and the model have been taken into account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct EffectiveOptions {
    /// Provider.
    pub target: Target,
    /// Element type.
    pub dtype: Dtype,
    /// Checkpoint outputs; `None` for a model without fixed state.
    pub checkpoints: CheckpointOption,
    /// Whether a multi-token prediction head is in the export.
    pub mtp: bool,
    /// How it is wired; `None` without one.
    pub wiring: Option<MtpWiring>,
    /// How its weights are stored; `None` without one.
    pub mtp_weights: Option<MtpWeights>,
    /// Spelling of the configuration.
    pub spelling: Spelling,
    /// Longest sequence in tokens.
    pub max_sequence: u64,
}
