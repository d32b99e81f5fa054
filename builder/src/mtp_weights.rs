//! How the weights of a drafting head are stored.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::options::{UnknownValue, unknown};

/// How the projections of a multi-token-prediction head are stored.
///
/// The head only proposes drafts, so text never depends on it, and a pass of it on the CPU takes as long as its weights
/// take to be read.
///
/// ```
/// use pawl_builder::{BuildOptions, MtpWeights, Target};
///
/// let mut options = BuildOptions::default();
/// assert_eq!(options.effective_mtp_weights(), MtpWeights::Int8);
/// options.target = Target::Cuda;
/// assert_eq!(options.effective_mtp_weights(), MtpWeights::Same);
/// assert_eq!("same".parse(), Ok(MtpWeights::Same));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum MtpWeights {
    /// In 8 bits, with a float32 scale for every 32 weights of a row: 1.125 bytes a weight. The head gets an output
    /// projection of its own, `vocab_size * hidden_size * 1.125` bytes more on disk and in memory, since the model's stays
    /// as it is; the embedding is still shared. A matrix whose rows are no multiple of 32 stays as with [`Same`](Self::Same),
    /// which the report says.
    Int8,
    /// As the model's: the output projection is shared with it.
    Same,
}

impl fmt::Display for MtpWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Int8 => "int8",
            Self::Same => "same",
        })
    }
}

impl FromStr for MtpWeights {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "int8" => Ok(Self::Int8),
            "same" => Ok(Self::Same),
            _ => Err(unknown("--mtp-weights", text, "int8 or same")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{BuildOptions, Dtype, Target};

    #[test]
    fn text_round_trips_and_everything_else_is_refused() {
        for weights in [MtpWeights::Int8, MtpWeights::Same] {
            assert_eq!(weights.to_string().parse(), Ok(weights));
        }
        for text in ["", "INT8", "int4", "8", "f32"] {
            let error = text.parse::<MtpWeights>().unwrap_err().to_string();
            assert!(
                error.contains("--mtp-weights") && error.contains("int8 or same"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_head_in_8_bits_is_for_float32_on_the_cpu() {
        for dtype in [None, Some(Dtype::F16), Some(Dtype::Bf16)] {
            let mut options = BuildOptions {
                target: Target::Cuda,
                dtype,
                ..BuildOptions::default()
            };
            assert_eq!(options.effective_mtp_weights(), MtpWeights::Same);
            options.mtp_weights = Some(MtpWeights::Same);
            assert_eq!(options.validate(), Ok(()));
            options.mtp_weights = Some(MtpWeights::Int8);
            let message = options.validate().unwrap_err().to_string();
            let dtype = options.effective_dtype();
            let named =
                format!("--mtp-weights int8 cannot be built for --target cuda --dtype {dtype}");
            assert!(
                message.contains(&named) && message.contains("use same"),
                "{message}"
            );
        }
        for chosen in [None, Some(MtpWeights::Int8), Some(MtpWeights::Same)] {
            let options = BuildOptions {
                mtp_weights: chosen,
                ..BuildOptions::default()
            };
            assert_eq!(options.validate(), Ok(()));
            let effective = options.effective_mtp_weights();
            assert_eq!(effective, chosen.unwrap_or(MtpWeights::Int8));
        }
    }
}
