//! What can be wrong between a graph and its configuration.

use genai_config_schema::{MAX_LISTED, MAX_QUOTED, quoted, shortened};
use std::fmt;
use std::path::{Path, PathBuf};

/// Defines the codes: variant, what it means.
macro_rules! codes {
    ($($variant:ident $meaning:literal,)*) => {
        /// Why a graph does not fit its configuration.
        ///
        /// ```
        /// assert!(pawl::ContractCode::ALL.contains(&pawl::ContractCode::P5));
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum ContractCode {
            $(#[doc = $meaning] $variant,)*
        }

        impl ContractCode {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The code as a word, such as `M7`.
            ///
            /// ```
            /// assert_eq!(pawl::ContractCode::M7.as_str(), "M7");
            /// ```
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)*
                }
            }

            /// What the code means, one sentence.
            ///
            /// ```
            /// assert!(pawl::ContractCode::M9.meaning().contains("float32"));
            /// ```
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => $meaning,)*
                }
            }
        }
    };
}

codes! {
    M1 "A declared input or output is not in the graph.",
    M2 "A state's input and output differ in type or shape.",
    M3 "A key/value cache is not of rank 4, or its geometry is not that of the group and the configuration.",
    M4 "A checkpoint output is missing, or is not `[slots, ...]` of its state.",
    M5 "The capture count is missing, not int32, or not one number per row.",
    M6 "The capture switch is not int32 of shape `[1]`.",
    M7 "A convolution's state is not of rank 3, a recurrent state not of rank 4, or a row has no fixed size.",
    M8 "A convolution's update output does not hold the input values.",
    M9 "A recurrent state or its update is not float32.",
    M10 "Value heads are not a multiple of key heads.",
    M11 "A recurrent update output does not have the width of decay, key and delta.",
    M12 "The row axis of a fixed state has a fixed extent.",
    P1 "A per-step input has another type or shape.",
    P2 "A graph input is neither a per-step input nor declared state.",
    P3 "An output for the host has another type or shape.",
    P4 "Element types on the host are float32.",
    P5 "A weight lies outside of the model folder, or a data file is missing or of another length than the weights in it.",
    P6 "A shared weight is not what the graph declares.",
    P7 "A state has another row shape or element type than its group declares.",
    P8 "An operator reads an input that is declared as something else.",
    P9 "A state or its checkpoints come from an operator of something else.",
    P10 "Logits are not of the rows that are asked for, or hidden rows not of all tokens.",
    P11 "An operator is built for other checkpoints than are declared.",
    P12 "A commit graph does not take or give what the states of its group need.",
    P13 "A history of token ids is neither int64 nor int32.",
}

impl fmt::Display for ContractCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One mismatch.
///
/// ```no_run
/// fn is_about_weights(mismatch: &pawl::ContractMismatch) -> bool {
///     matches!(mismatch.code, pawl::ContractCode::P5 | pawl::ContractCode::P6)
/// }
/// # let _ = is_about_weights;
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{graph}: `{tensor}` is {found}, expected {expected} [{code}]")]
#[non_exhaustive]
pub struct ContractMismatch {
    /// Why.
    pub code: ContractCode,
    /// The graph, as the configuration names its file.
    pub graph: String,
    /// The input, output or weight, or a data file.
    pub tensor: String,
    /// What the configuration and the rest of the graph ask for.
    pub expected: String,
    /// What the graph has.
    pub found: String,
}

/// Every mismatch of a model, never empty.
///
/// ```no_run
/// use pawl::{LoadError, LoadOptions, inspect};
///
/// if let Err(LoadError::Contract(errors)) = inspect("demo/tiny-python", &LoadOptions::new()) {
///     for mismatch in &errors.mismatches {
///         println!("{}: {} is {}", mismatch.graph, mismatch.tensor, mismatch.found);
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContractErrors {
    /// The model folder.
    pub folder: PathBuf,
    /// The mismatches: decoder first, then head, then weights; a thousand at most. Long names are shortened.
    pub mismatches: Vec<ContractMismatch>,
}

impl fmt::Display for ContractErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` does not fit its genai_config.json",
            self.folder.display()
        )?;
        match self.mismatches.as_slice() {
            [mismatch] => write!(f, ": {mismatch}"),
            all => {
                write!(f, " in {} places", all.len())?;
                let (listed, more) = all.split_at(all.len().min(MAX_LISTED));
                listed
                    .iter()
                    .try_for_each(|mismatch| write!(f, "\n  {mismatch}"))?;
                match more.len() {
                    0 => Ok(()),
                    more => write!(f, "\n  and {more} more"),
                }
            }
        }
    }
}

impl std::error::Error for ContractErrors {}

/// Most mismatches that are collected: a graph can have one for every node.
const MOST: usize = 1000;

/// Mismatches found so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    graph: String,
    found: Vec<ContractMismatch>,
}

impl Findings {
    /// Mismatches from here on are of `graph`.
    pub(super) fn start(&mut self, graph: &str) {
        graph.clone_into(&mut self.graph);
    }

    pub(super) fn add(
        &mut self,
        code: ContractCode,
        tensor: &str,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) {
        if self.found.len() >= MOST {
            return;
        }
        // Names of a graph may be long, and what is said of them may hold two.
        let told = |text: String| shortened(&text, 3 * MAX_QUOTED).into_owned();
        self.found.push(ContractMismatch {
            code,
            graph: quoted(&self.graph).into_owned(),
            tensor: quoted(tensor).into_owned(),
            expected: told(expected.to_string()),
            found: told(found.to_string()),
        });
    }

    pub(super) fn result(self, folder: &Path) -> Result<(), ContractErrors> {
        if self.found.is_empty() {
            return Ok(());
        }
        Err(ContractErrors {
            folder: folder.to_path_buf(),
            mismatches: self.found,
        })
    }
}
