//! Inputs and outputs of the operators that keep state, by their places.

use crate::exec::StepInput;
use crate::model::graph_io::Node;
use genai_config_schema::StateOperator;
use std::fmt;

/// What an operator takes or gives at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Step(StepInput),
    Key,
    Value,
    State,
    Checkpoints,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key => "a key cache",
            Self::Value => "a value cache",
            Self::State => "a fixed state of this operator",
            Self::Checkpoints => "checkpoints",
            Self::Step(input) => match input {
                StepInput::InputIds => "token ids",
                StepInput::PositionIds => "positions",
                StepInput::CumulativeLengths => "cumulative lengths",
                StepInput::PastLengths => "past lengths",
                StepInput::BlockTable => "the block table",
                StepInput::LogitsIndices => "the rows that get logits",
                StepInput::ReadRows => "the rows to read",
                StepInput::WriteRows => "the rows to write",
                StepInput::CaptureCounts => "capture counts",
                StepInput::HiddenStates => "hidden rows",
            },
        })
    }
}

/// The places of one operator. Outputs are those after the first, which is the result.
#[derive(Debug)]
pub(super) struct Layout {
    domain: &'static str,
    kind: &'static str,
    /// The operator of a fixed state; none for attention.
    pub(super) operator: Option<StateOperator>,
    pub(super) inputs: &'static [(usize, Role)],
    pub(super) outputs: &'static [Role],
    /// Attribute that says how much is captured.
    pub(super) count: &'static str,
}

const CUMULATIVE: Role = Role::Step(StepInput::CumulativeLengths);
const PAST: Role = Role::Step(StepInput::PastLengths);
const TABLE: Role = Role::Step(StepInput::BlockTable);
const READ: Role = Role::Step(StepInput::ReadRows);
const WRITE: Role = Role::Step(StepInput::WriteRows);
const COUNTS: Role = Role::Step(StepInput::CaptureCounts);

impl Layout {
    /// Where the operator puts a token's checkpoint: Gated DeltaNet fills states from the last slot backwards, everything
    /// else is filled from the first slot on.
    pub(super) fn alignment(&self, form: &str) -> &'static str {
        match (self.operator, form) {
            (Some(StateOperator::GatedDeltaNet), "state") => "right",
            _ => "left",
        }
    }
}

const LAYOUTS: [Layout; 6] = [
    Layout {
        domain: "pawl",
        kind: "PagedAttention",
        operator: None,
        inputs: &[
            (1, Role::Key),
            (2, Role::Value),
            (3, CUMULATIVE),
            (4, PAST),
            (5, TABLE),
        ],
        outputs: &[Role::Key, Role::Value],
        count: "",
    },
    Layout {
        domain: "pawl",
        kind: "CausalConv",
        operator: Some(StateOperator::CausalConv),
        inputs: &[
            (3, Role::State),
            (4, CUMULATIVE),
            (5, READ),
            (6, WRITE),
            (7, COUNTS),
        ],
        outputs: &[Role::State, Role::Checkpoints],
        count: "checkpoint_count",
    },
    Layout {
        domain: "pawl",
        kind: "GatedDeltaNet",
        operator: Some(StateOperator::GatedDeltaNet),
        inputs: &[
            (5, Role::State),
            (6, CUMULATIVE),
            (7, READ),
            (8, WRITE),
            (9, COUNTS),
        ],
        outputs: &[Role::State, Role::Checkpoints],
        count: "checkpoint_count",
    },
    Layout {
        domain: "com.microsoft",
        kind: "PagedAttention",
        operator: None,
        inputs: &[
            (3, Role::Key),
            (4, Role::Value),
            (5, CUMULATIVE),
            (6, PAST),
            (7, TABLE),
        ],
        outputs: &[Role::Key, Role::Value],
        count: "",
    },
    Layout {
        domain: "com.microsoft",
        kind: "VarlenCausalConvWithState",
        operator: Some(StateOperator::CausalConv),
        inputs: &[(2, CUMULATIVE), (4, Role::State), (5, COUNTS)],
        outputs: &[Role::State, Role::Checkpoints],
        count: "state_update_capacity",
    },
    Layout {
        domain: "com.microsoft",
        kind: "GatedDeltaNet",
        operator: Some(StateOperator::GatedDeltaNet),
        inputs: &[(3, CUMULATIVE), (6, Role::State), (9, COUNTS)],
        outputs: &[Role::State, Role::Checkpoints],
        count: "state_update_capacity",
    },
];

/// The layout of a node, if it is one of an operator that keeps state.
pub(super) fn layout_of(node: &Node) -> Option<&'static Layout> {
    LAYOUTS
        .iter()
        .find(|layout| layout.domain == node.domain && layout.kind == node.kind)
}
