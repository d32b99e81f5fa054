//! What to build, typed, and the combinations a target cannot do.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use thiserror::Error;

use crate::mtp_weights::MtpWeights;
use crate::wiring::MtpWiring;

/// Most drafted transitions or states one step can capture.
const MAX_CHECKPOINTS: u8 = 8;

/// Provider a model is built for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Target {
    /// Pawl's own operators on ONNX Runtime's CPU provider.
    #[default]
    Cpu,
    /// The `com.microsoft` operators of ONNX Runtime's CUDA provider.
    Cuda,
}

/// Element type of weights, activations and the key/value cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Dtype {
    /// 32-bit IEEE 754.
    F32,
    /// 16-bit IEEE 754: finite up to 65504.
    F16,
    /// The upper half of a float32.
    Bf16,
}

/// Checkpoint outputs of the stateful operators; each number is the count of slots, 1 to 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CheckpointOption {
    /// No checkpoint outputs: the model cannot take back drafted tokens of its fixed state.
    None,
    /// Each slot is a full state.
    State(u8),
    /// Each slot is a transition, replayed from the committed state.
    Update(u8),
}

/// How `genai_config.json` is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
pub enum Spelling {
    /// State groups with bindings.
    #[default]
    #[serde(rename = "pawl")]
    Pawl,
    /// The keys of onnxruntime-genai 0.18.
    #[serde(rename = "genai-0.18")]
    Genai018,
}

/// A text that is none of an option's values.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{option} is {found:?}; expected {expected}")]
#[non_exhaustive]
pub struct UnknownValue {
    /// The option, as on the command line.
    pub option: &'static str,
    /// The text given.
    pub found: String,
    /// The texts that are accepted.
    pub expected: &'static str,
}

/// A combination of options that cannot be built.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionsError {
    /// Float32 was asked of CUDA.
    #[error(
        "--dtype f32 cannot be built for --target cuda: com.microsoft::PagedAttention exists \
         there in float16 and bfloat16 only; use f16 or bf16"
    )]
    Float32OnCuda,
    /// A 16-bit type was asked of the CPU.
    #[error(
        "--dtype {dtype} cannot be built for --target cpu: its operators compute in float32; \
         use f32"
    )]
    SixteenBitOnCpu {
        /// The type given.
        dtype: Dtype,
    },
    /// A head in 8 bits was asked of anything but float32 on the CPU.
    #[error(
        "--mtp-weights int8 cannot be built for --target {target} --dtype {dtype}: it is made for \
         --target cpu, which computes in f32; use same"
    )]
    Int8HeadElsewhere {
        /// The target given.
        target: Target,
        /// The type in effect.
        dtype: Dtype,
    },
    /// The state form was asked of CUDA.
    #[error(
        "--checkpoints {checkpoints} cannot be built for --target cuda: the com.microsoft \
         operators output transitions, not states; use update:W or none"
    )]
    StateFormOnCuda {
        /// The form given.
        checkpoints: CheckpointOption,
    },
    /// The state form was asked of the onnxruntime-genai spelling.
    #[error(
        "--checkpoints {checkpoints} cannot be written with --spelling genai-0.18: its \
         state_update keys describe transitions only; use update:W or none"
    )]
    StateFormInGenai {
        /// The form given.
        checkpoints: CheckpointOption,
    },
    /// The onnxruntime-genai spelling was asked of the CPU.
    #[error(
        "--spelling genai-0.18 cannot be written for --target cpu: onnxruntime-genai does not \
         know Pawl's CPU operators; use --target cuda or --spelling pawl"
    )]
    GenaiOnCpu,
    /// The number of slots is out of range.
    #[error("--checkpoints {checkpoints} is out of range: the count must be 1 to 8")]
    CheckpointCount {
        /// The form given.
        checkpoints: CheckpointOption,
    },
    /// No token would fit.
    #[error("--max-sequence 0 leaves no room for a token; it must be at least 1")]
    MaxSequence,
}

/// Everything that can be chosen about a build.
///
/// ```
/// use pawl_builder::{BuildOptions, CheckpointOption, Dtype, Target};
///
/// let mut options = BuildOptions::default();
/// options.checkpoints = CheckpointOption::State(4);
/// assert!(options.validate().is_ok());
/// assert_eq!(options.effective_dtype(), Dtype::F32);
///
/// options.target = Target::Cuda;
/// let refused = options.validate().unwrap_err();
/// assert!(refused.to_string().contains("state:4"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuildOptions {
    /// Provider to build for.
    pub target: Target,
    /// Element type; `None` takes the target's own (float32 on CPU, float16 on CUDA).
    pub dtype: Option<Dtype>,
    /// Checkpoint outputs of the stateful operators, if the model has any.
    pub checkpoints: CheckpointOption,
    /// Export the model's multi-token prediction head, if it has one.
    pub mtp: bool,
    /// How that head is wired to the model.
    pub wiring: MtpWiring,
    /// How the weights of that head are stored; `None` takes what is fastest on the target (8 bits on the CPU).
    pub mtp_weights: Option<MtpWeights>,
    /// How the configuration is written.
    pub spelling: Spelling,
    /// Longest sequence in tokens; `None` takes the model's context length.
    pub max_sequence: Option<u32>,
    /// Refuse a checkpoint with NaN or infinite weights instead of warning of them.
    pub refuse_nonfinite: bool,
    /// Replace an existing output.
    pub force: bool,
}

impl BuildOptions {
    /// Checks every value and combination.
    ///
    /// # Errors
    /// The first combination that the target or the spelling cannot do, with the reason.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let checkpoints = self.checkpoints;
        let (state_form, count) = match checkpoints {
            CheckpointOption::None => (false, 1),
            CheckpointOption::State(count) => (true, count),
            CheckpointOption::Update(count) => (false, count),
        };
        if !(1..=MAX_CHECKPOINTS).contains(&count) {
            return Err(OptionsError::CheckpointCount { checkpoints });
        }
        if self.max_sequence == Some(0) {
            return Err(OptionsError::MaxSequence);
        }
        match (self.target, self.effective_dtype()) {
            (Target::Cpu, Dtype::F32) | (Target::Cuda, Dtype::F16 | Dtype::Bf16) => {}
            (Target::Cuda, Dtype::F32) => return Err(OptionsError::Float32OnCuda),
            (Target::Cpu, dtype @ (Dtype::F16 | Dtype::Bf16)) => {
                return Err(OptionsError::SixteenBitOnCpu { dtype });
            }
        }
        if self.mtp_weights == Some(MtpWeights::Int8) && self.target != Target::Cpu {
            let (target, dtype) = (self.target, self.effective_dtype());
            return Err(OptionsError::Int8HeadElsewhere { target, dtype });
        }
        match (self.spelling, self.target) {
            (Spelling::Genai018, Target::Cpu) => Err(OptionsError::GenaiOnCpu),
            (Spelling::Genai018, Target::Cuda) if state_form => {
                Err(OptionsError::StateFormInGenai { checkpoints })
            }
            (Spelling::Pawl, Target::Cuda) if state_form => {
                Err(OptionsError::StateFormOnCuda { checkpoints })
            }
            (Spelling::Pawl | Spelling::Genai018, Target::Cpu | Target::Cuda) => Ok(()),
        }
    }

    /// The element type that is built: the one chosen, or the target's own.
    #[must_use]
    pub fn effective_dtype(&self) -> Dtype {
        self.dtype.unwrap_or(match self.target {
            Target::Cpu => Dtype::F32,
            Target::Cuda => Dtype::F16,
        })
    }

    /// How the weights of the head are stored: as chosen, or as is fastest on the target.
    #[must_use]
    pub fn effective_mtp_weights(&self) -> MtpWeights {
        let cpu = (Target::Cpu, Dtype::F32) == (self.target, self.effective_dtype());
        let fastest = if cpu {
            MtpWeights::Int8
        } else {
            MtpWeights::Same
        };
        self.mtp_weights.unwrap_or(fastest)
    }
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self {
            target: Target::default(),
            dtype: None,
            checkpoints: CheckpointOption::default(),
            mtp: true,
            wiring: MtpWiring::default(),
            mtp_weights: None,
            spelling: Spelling::default(),
            max_sequence: None,
            refuse_nonfinite: false,
            force: false,
        }
    }
}

impl Default for CheckpointOption {
    fn default() -> Self {
        Self::Update(MAX_CHECKPOINTS)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
        })
    }
}

impl FromStr for Target {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda),
            _ => Err(unknown("--target", text, "cpu or cuda")),
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        })
    }
}

impl FromStr for Dtype {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "f32" => Ok(Self::F32),
            "f16" => Ok(Self::F16),
            "bf16" => Ok(Self::Bf16),
            _ => Err(unknown("--dtype", text, "f32, f16 or bf16")),
        }
    }
}

impl fmt::Display for CheckpointOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::State(count) => write!(f, "state:{count}"),
            Self::Update(count) => write!(f, "update:{count}"),
        }
    }
}

impl FromStr for CheckpointOption {
    type Err = UnknownValue;

    /// Reads `none`, `state:W` or `update:W` with W of 1 to 8.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || {
            unknown(
                "--checkpoints",
                text,
                "state:W, update:W (W is 1 to 8) or none",
            )
        };
        if text == "none" {
            return Ok(Self::None);
        }
        let (form, count) = text.split_once(':').ok_or_else(wrong)?;
        let count = match count.as_bytes() {
            [digit @ b'1'..=b'8'] => digit - b'0',
            _ => return Err(wrong()),
        };
        match form {
            "state" => Ok(Self::State(count)),
            "update" => Ok(Self::Update(count)),
            _ => Err(wrong()),
        }
    }
}

impl Serialize for CheckpointOption {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Spelling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pawl => "pawl",
            Self::Genai018 => "genai-0.18",
        })
    }
}

impl FromStr for Spelling {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "pawl" => Ok(Self::Pawl),
            "genai-0.18" => Ok(Self::Genai018),
            _ => Err(unknown("--spelling", text, "pawl or genai-0.18")),
        }
    }
}

pub(crate) fn unknown(option: &'static str, found: &str, expected: &'static str) -> UnknownValue {
    UnknownValue {
        option,
        found: found.to_owned(),
        expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: [&str; 4]) -> BuildOptions {
        let [target, dtype, checkpoints, spelling] = text;
        BuildOptions {
            target: target.parse().unwrap(),
            dtype: (dtype != "-").then(|| dtype.parse().unwrap()),
            checkpoints: checkpoints.parse().unwrap(),
            spelling: spelling.parse().unwrap(),
            ..BuildOptions::default()
        }
    }

    fn expected_refusal(case: [&str; 4]) -> Option<&'static str> {
        match case {
            ["cpu", "-" | "f32", _, "pawl"] => None,
            ["cuda", "-" | "f16" | "bf16", "none" | "update:8", _] => None,
            ["cpu", "f16" | "bf16", ..] => Some("compute in float32"),
            ["cpu", ..] => Some("does not know Pawl's CPU operators"),
            ["cuda", "f32", ..] => Some("float16 and bfloat16 only"),
            ["cuda", .., "genai-0.18"] => Some("describe transitions only"),
            _ => Some("output transitions, not states"),
        }
    }

    #[test]
    fn every_combination_is_built_or_refused_with_its_reason() {
        for index in 0..2 * 4 * 3 * 2 {
            let case = [
                ["cpu", "cuda"][index % 2],
                ["-", "f32", "f16", "bf16"][index / 2 % 4],
                ["none", "state:1", "update:8"][index / 8 % 3],
                ["pawl", "genai-0.18"][index / 24],
            ];
            match (options(case).validate(), expected_refusal(case)) {
                (Ok(()), None) => {}
                (Err(error), Some(text)) if error.to_string().contains(text) => {}
                (result, _) => panic!("{case:?}: {result:?}"),
            }
        }
    }

    #[test]
    fn text_round_trips_and_everything_else_is_refused() {
        for text in ["none", "state:1", "state:8", "update:3"] {
            assert_eq!(text.parse::<CheckpointOption>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "State:1",
            "state",
            "state:",
            "state:0",
            "state:9",
            "state:10",
            "state:+1",
            "update:01",
            "update: 1",
            "update:1.0",
            "update:-1",
            "none:1",
            "tree:2",
        ] {
            let error = text.parse::<CheckpointOption>().unwrap_err().to_string();
            assert!(
                error.contains("--checkpoints") && error.contains("update:W"),
                "{error}"
            );
        }
        assert!("CPU".parse::<Target>().is_err());
        assert!("float32".parse::<Dtype>().is_err());
        assert!("genai".parse::<Spelling>().is_err());
    }

    #[test]
    fn counts_and_lengths_out_of_range_are_refused() {
        for count in [0, 9, 255] {
            for checkpoints in [
                CheckpointOption::State(count),
                CheckpointOption::Update(count),
            ] {
                let options = BuildOptions {
                    checkpoints,
                    ..BuildOptions::default()
                };
                assert_eq!(
                    options.validate(),
                    Err(OptionsError::CheckpointCount { checkpoints })
                );
            }
        }
        let options = BuildOptions {
            max_sequence: Some(0),
            ..BuildOptions::default()
        };
        assert_eq!(options.validate(), Err(OptionsError::MaxSequence));
    }
}
