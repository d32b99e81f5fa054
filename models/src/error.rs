//! Why a checkpoint cannot be described.

use std::fmt;

/// Why a checkpoint cannot be described. Messages name the file, the key or tensor, what was expected and what was
/// found.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DescribeError {
    /// No entry of the registry describes this kind of model.
    #[error("config.json: model_type: expected one of {}, found {found}", known.join(", "))]
    UnknownArchitecture {
        /// The file's `model_type`, or what stands in its place.
        found: String,
        /// Every `model_type` the registry knows.
        known: Vec<&'static str>,
    },
    /// A setting is missing, or has a value it cannot have.
    #[error("{file}: {key}: expected {expected}, found {found}")]
    Value {
        /// File the setting belongs to.
        file: &'static str,
        /// Path of the key.
        key: String,
        /// What the key may hold.
        expected: String,
        /// What it holds.
        found: String,
    },
    /// Settings that change what the model computes in a way no description can express.
    #[error("config.json: not supported: {}", join(refusals))]
    Unsupported {
        /// Every such setting of the file.
        refusals: Vec<Refusal>,
    },
    /// Tensors are absent or have another shape than the settings ask for.
    #[error("checkpoint: {} tensor(s) do not fit config.json: {}", problems.len(), join(problems))]
    Tensors {
        /// Every such tensor, in the order of the layers.
        problems: Vec<TensorProblem>,
    },
    /// Tensors that are part of the model, but that nothing described here uses: leaving them out would change what is
    /// computed.
    #[error(
        "checkpoint: {} tensor(s) of the model have no use in its architecture, or belong to layers that config.json does not \
         declare: {}",
        tensors.len(),
        join(tensors)
    )]
    Unused {
        /// Every such tensor, by name.
        tensors: Vec<String>,
    },
    /// Weights that cannot be put below each other.
    #[error("weights cannot be concatenated by rows: {}", weights.join(", "))]
    Concat {
        /// First tensor and shape of each.
        weights: Vec<String>,
    },
}

impl DescribeError {
    /// A short, stable name of the kind of error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownArchitecture { .. } => "unknown_architecture",
            Self::Value { .. } => "bad_value",
            Self::Unsupported { .. } => "unsupported",
            Self::Tensors { .. } => "tensors",
            Self::Unused { .. } => "unused_tensors",
            Self::Concat { .. } => "concat",
        }
    }
}

/// One setting of `config.json` that is not supported.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// Path of the key.
    pub key: String,
    /// The value that is supported.
    pub expected: String,
    /// The value of the file.
    pub found: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            expected,
            found,
        } = self;
        write!(f, "{key}: expected {expected}, found {found}")
    }
}

/// One tensor that is absent or has the wrong shape.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorProblem {
    /// Name the description asks for.
    pub tensor: String,
    /// Shape the settings ask for.
    pub expected: Vec<u64>,
    /// Shape in the checkpoint; `None` when the tensor is absent.
    pub found: Option<Vec<u64>>,
    /// Why it is asked for, where that is not plain.
    pub note: Option<&'static str>,
}

impl fmt::Display for TensorProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            tensor,
            expected,
            found,
            note,
        } = self;
        match found {
            None => write!(f, "{tensor}: expected {expected:?}, found no such tensor")?,
            Some(found) => write!(f, "{tensor}: expected {expected:?}, found {found:?}")?,
        }
        note.map_or(Ok(()), |note| write!(f, " ({note})"))
    }
}

/// Longest list a message spells out; the error's fields hold all.
const LISTED: usize = 64;

fn join<T: fmt::Display>(items: &[T]) -> String {
    let mut lines: Vec<String> = items.iter().take(LISTED).map(ToString::to_string).collect();
    if let Some(more) = items.len().checked_sub(LISTED).filter(|more| *more > 0) {
        lines.push(format!("and {more} more"));
    }
    lines.join("; ")
}
