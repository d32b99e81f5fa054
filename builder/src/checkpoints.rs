//! Checkpoint outputs: what a model built with some option can take back.

use genai_config_schema::{CheckpointAlignment, CheckpointForm, StateOperator};

use crate::options::CheckpointOption;

/// The separate checkpoint output of every operator with a fixed state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checkpoints {
    pub(crate) form: CheckpointForm,
    /// Slots, 1 to 8.
    pub(crate) count: u8,
}

impl Checkpoints {
    /// What the option asks for.
    pub(crate) fn from_option(option: CheckpointOption) -> Option<Self> {
        let (form, count) = match option {
            CheckpointOption::None => return None,
            CheckpointOption::State(count) => (CheckpointForm::State, count),
            CheckpointOption::Update(count) => (CheckpointForm::Update, count),
        };
        Some(Self { form, count })
    }

    /// Where a token lies among the slots.
    ///
    /// Transitions are replayed from the first token on, so they start at slot 0. Of states, a recurrent operator
    /// fills the last slots and a convolution the first.
    pub(crate) fn alignment(self, operator: StateOperator) -> CheckpointAlignment {
        match (self.form, operator) {
            (CheckpointForm::State, StateOperator::GatedDeltaNet) => CheckpointAlignment::Right,
            (CheckpointForm::State | CheckpointForm::Update, _) => CheckpointAlignment::Left,
        }
    }

    /// Most drafts of a row: a candidate row captures one token more than it has drafts.
    pub(crate) fn max_drafts(self) -> u8 {
        self.count.saturating_sub(1)
    }
}
