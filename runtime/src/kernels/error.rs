//! Why a kernel refuses its inputs.

/// A refusal of one of Pawl's operators. Nothing was written when a kernel returns one, but for states that were owed, which
/// are made then; except by [`KernelError::Panicked`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum KernelError {
    /// An operator failed before while it made states of this bank.
    #[error("states of this bank were lost")]
    Lost,
    /// A required input or output is absent.
    #[error("`{name}` is missing")]
    Missing {
        /// Name in the operator's schema.
        name: &'static str,
    },
    /// An attribute is absent or outside its range.
    #[error("attribute `{name}` must be {expected}, found {found}")]
    Attribute {
        /// Name in the operator's schema.
        name: &'static str,
        /// What is allowed.
        expected: &'static str,
        /// What the node says.
        found: String,
    },
    /// A tensor has another shape than the others imply.
    #[error("`{name}` must have the shape {expected}, found {found:?}")]
    Shape {
        /// Name in the operator's schema.
        name: &'static str,
        /// Axes with their extents.
        expected: String,
        /// Axes found.
        found: Vec<i64>,
    },
    /// `cumulative_sequence_lengths` does not cut the tokens into rows of at least one token.
    #[error(
        "`cumulative_sequence_lengths` must rise strictly from 0 to {tokens}, found {found} at \
         index {index}"
    )]
    Cumulative {
        /// Packed tokens of the batch.
        tokens: usize,
        /// First offending index.
        index: usize,
        /// Value there.
        found: i32,
    },
    /// A per-row value is outside its range.
    #[error("`{name}` of row {row} must be in {low}..={high}, found {found}")]
    Range {
        /// Name in the operator's schema.
        name: &'static str,
        /// Row of the batch.
        row: usize,
        /// Smallest allowed value.
        low: i64,
        /// Largest allowed value.
        high: i64,
        /// Value found.
        found: i64,
    },
    /// Two rows of a step meet in one bank row and at least one of them writes it.
    #[error("bank row {bank_row} is written by row {row} and also {other}")]
    BankConflict {
        /// The bank row.
        bank_row: usize,
        /// Batch row that writes it.
        row: usize,
        /// What else touches it.
        other: &'static str,
    },
    /// Two rows of a step meet in one cache block and at least one of them writes it.
    #[error("cache block {block} is written by row {row} and also used by row {other}")]
    BlockConflict {
        /// The block.
        block: usize,
        /// Batch row that writes it.
        row: usize,
        /// Batch row that also uses it (the same row when its table names the block twice).
        other: usize,
    },
    /// ONNX Runtime refused a call.
    #[error("{0}")]
    Runtime(String),
    /// The kernel itself failed; outputs are unspecified.
    #[error("the kernel panicked: this is a bug in Pawl, its outputs are unspecified")]
    Panicked,
}

impl From<ort::Error> for KernelError {
    fn from(error: ort::Error) -> Self {
        Self::Runtime(error.to_string())
    }
}

impl From<KernelError> for ort::Error {
    fn from(error: KernelError) -> Self {
        Self::new_with_code(ort::ErrorCode::InvalidArgument, error.to_string())
    }
}
