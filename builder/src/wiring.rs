//! How a drafting head is wired to the model.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::options::{UnknownValue, unknown};

/// How a multi-token-prediction head is wired to the model.
///
/// The weights of a checkpoint do not say it, and a wrong wiring does not fail: it drafts, and is seldom right. The default
/// is that of Qwen3.5 and its successors. Text never depends on it.
///
/// ```
/// use pawl_builder::{HeadHidden, HeadOrder, MtpWiring};
///
/// assert_eq!(MtpWiring::default().to_string(), "after-norm, embedding-first");
/// assert_eq!("before-norm".parse(), Ok(HeadHidden::BeforeNorm));
/// assert_eq!("hidden-first".parse(), Ok(HeadOrder::HiddenFirst));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
pub struct MtpWiring {
    /// The hidden row that it reads.
    pub hidden: HeadHidden,
    /// The halves of its input.
    pub order: HeadOrder,
}

/// The hidden row that a head reads: the model's for its first draft, its own for further ones.
///
/// ```
/// assert!("normed".parse::<pawl_builder::HeadHidden>().is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum HeadHidden {
    /// The row that the output projection reads, as in Qwen3.5.
    #[default]
    AfterNorm,
    /// The row before the final norm, as in DeepSeek-V3 and GLM.
    BeforeNorm,
}

/// Which half of a head's input comes first.
///
/// ```
/// assert_eq!(pawl_builder::HeadOrder::default().to_string(), "embedding-first");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum HeadOrder {
    /// The token's embedding, then the hidden row.
    #[default]
    EmbeddingFirst,
    /// The hidden row, then the token's embedding.
    HiddenFirst,
}

impl fmt::Display for MtpWiring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.hidden, self.order)
    }
}

impl fmt::Display for HeadHidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AfterNorm => "after-norm",
            Self::BeforeNorm => "before-norm",
        })
    }
}

impl FromStr for HeadHidden {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "after-norm" => Ok(Self::AfterNorm),
            "before-norm" => Ok(Self::BeforeNorm),
            _ => Err(unknown("--mtp-hidden", text, "after-norm or before-norm")),
        }
    }
}

impl fmt::Display for HeadOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EmbeddingFirst => "embedding-first",
            Self::HiddenFirst => "hidden-first",
        })
    }
}

impl FromStr for HeadOrder {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "embedding-first" => Ok(Self::EmbeddingFirst),
            "hidden-first" => Ok(Self::HiddenFirst),
            _ => Err(unknown(
                "--mtp-order",
                text,
                "embedding-first or hidden-first",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_everything_else_is_refused() {
        for hidden in [HeadHidden::AfterNorm, HeadHidden::BeforeNorm] {
            assert_eq!(hidden.to_string().parse(), Ok(hidden));
        }
        for order in [HeadOrder::EmbeddingFirst, HeadOrder::HiddenFirst] {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        let error = "first".parse::<HeadOrder>().unwrap_err().to_string();
        assert!(
            error.contains("--mtp-order") && error.contains("hidden-first"),
            "{error}"
        );
        let error = "AFTER-NORM".parse::<HeadHidden>().unwrap_err().to_string();
        assert!(error.contains("--mtp-hidden"), "{error}");
    }
}
