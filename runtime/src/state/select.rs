//! Where the state after an accepted prefix comes from: the only place that knows alignment.

use genai_config_schema::{CheckpointAlignment, CheckpointForm};
use std::num::NonZeroUsize;

/// Where the state after the kept tokens is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// In the row the operator wrote: all tokens are kept.
    Final,
    /// In this checkpoint slot, as a full state.
    Slot(usize),
    /// In the first so many transitions, replayed over the state before the step.
    Replay(usize),
}

/// Why the state after the kept tokens does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum SelectError {
    /// More tokens kept than run.
    #[error("{kept} tokens kept of {tokens}")]
    KeptTooMany {
        /// Tokens kept.
        kept: usize,
        /// Tokens run.
        tokens: usize,
    },
    /// The row ran more tokens than the checkpoint output has slots.
    #[error("a prefix of {tokens} tokens cannot be kept: the checkpoint output holds {capacity}")]
    TooLong {
        /// Tokens run.
        tokens: usize,
        /// Checkpoint slots.
        capacity: usize,
    },
    /// The token's checkpoint was not captured.
    #[error("the state after {kept} tokens was not captured ({captured} were)")]
    NotCaptured {
        /// Tokens kept.
        kept: usize,
        /// Tokens captured, from the first one on.
        captured: usize,
    },
    /// Transitions are always aligned left.
    #[error("transitions are aligned left, this output says right")]
    Alignment,
}

/// Chooses the source of the state after `kept` of the `tokens` tokens of one row.
///
/// `capacity` is the checkpoint count of the output, `captured` how many tokens of the row were captured (from the
/// first on), `final_written` whether the operator wrote the state after the last token.
///
/// | form, alignment | slot of the state after token `kept` |
/// |---|---|
/// | all kept, final written | the final state |
/// | `state`, left | `kept - 1` |
/// | `state`, right | `capacity - tokens + kept - 1` |
/// | `update` (left) | transitions `0..kept` replayed |
///
/// # Errors
/// When `kept` exceeds `tokens`, and, unless the final state serves: when `tokens` exceeds `capacity`, or `kept`
/// exceeds `captured`.
pub(crate) fn select(query: &Query) -> Result<Source, SelectError> {
    let Query {
        form,
        alignment,
        capacity,
        captured,
        final_written,
        tokens,
        kept,
    } = *query;
    let kept = kept.get();
    if kept > tokens {
        return Err(SelectError::KeptTooMany { kept, tokens });
    }
    if kept == tokens && final_written {
        return Ok(Source::Final);
    }
    if kept > captured {
        return Err(SelectError::NotCaptured { kept, captured });
    }
    if tokens > capacity {
        return Err(SelectError::TooLong { tokens, capacity });
    }
    match (form, alignment) {
        (CheckpointForm::State, CheckpointAlignment::Left) => Ok(Source::Slot(kept - 1)),
        (CheckpointForm::State, CheckpointAlignment::Right) => {
            Ok(Source::Slot(capacity - tokens + kept - 1))
        }
        (CheckpointForm::Update, CheckpointAlignment::Left) => Ok(Source::Replay(kept)),
        (CheckpointForm::Update, CheckpointAlignment::Right) => Err(SelectError::Alignment),
    }
}

/// One question to [`select`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    /// What a slot holds.
    pub(crate) form: CheckpointForm,
    /// Where the slot of a token lies.
    pub(crate) alignment: CheckpointAlignment,
    /// Slots of the checkpoint output, 0 where there is none.
    pub(crate) capacity: usize,
    /// Tokens captured, from the first one on.
    pub(crate) captured: usize,
    /// Whether the state after the last token was written.
    pub(crate) final_written: bool,
    /// Tokens the row ran.
    pub(crate) tokens: usize,
    /// Tokens kept.
    pub(crate) kept: NonZeroUsize,
}
