//! Names of graph inputs and outputs, shared by the graphs and the configuration.

use genai_config_schema::StateOperator;

/// A file and graph of a model folder.
pub(crate) const MODEL_FILE: &str = "model.onnx";
pub(crate) const MTP_FILE: &str = "mtp.onnx";

pub(crate) const INPUT_IDS: &str = "input_ids";
pub(crate) const POSITION_IDS: &str = "position_ids";
pub(crate) const CUMULATIVE_LENGTHS: &str = "cumulative_sequence_lengths";
pub(crate) const PAST_LENGTHS: &str = "past_sequence_lengths";
pub(crate) const BLOCK_TABLE: &str = "block_table";
pub(crate) const LOGITS_INDICES: &str = "logits_indices";
pub(crate) const READ_ROWS: &str = "read_rows";
pub(crate) const WRITE_ROWS: &str = "write_rows";

pub(crate) const LOGITS: &str = "logits";
pub(crate) const HIDDEN_STATES: &str = "hidden_states";
/// The drafting head's own hidden rows, which feed the next chained draft.
pub(crate) const HIDDEN_STATES_OUT: &str = "hidden_states_out";

/// Initializers that several graphs may share.
pub(crate) const EMBEDDING: &str = "embed_tokens";
pub(crate) const OUTPUT_PROJECTION: &str = "lm_head";

/// Names of a state before and after the step; `%d` is the layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateNames {
    pub(crate) input: &'static str,
    pub(crate) output: &'static str,
}

pub(crate) const KEY: StateNames = StateNames {
    input: "past_key_values.%d.key",
    output: "present.%d.key",
};
pub(crate) const VALUE: StateNames = StateNames {
    input: "past_key_values.%d.value",
    output: "present.%d.value",
};
pub(crate) const CONV: StateNames = StateNames {
    input: "past_key_values.%d.conv_state",
    output: "present.%d.conv_state",
};
pub(crate) const RECURRENT: StateNames = StateNames {
    input: "past_key_values.%d.recurrent_state",
    output: "present.%d.recurrent_state",
};

/// Inputs and outputs of a commit graph.
pub(crate) mod commit {
    pub(crate) const BANK: &str = "bank";
    pub(crate) const CHECKPOINTS: &str = "checkpoints";
    pub(crate) const BATCH_ROWS: &str = "batch_rows";
    pub(crate) const READ_ROWS: &str = "read_rows";
    pub(crate) const WRITE_ROWS: &str = "write_rows";
    pub(crate) const SLOTS: &str = "slots";
    pub(crate) const KEPT: &str = "kept";
    pub(crate) const COMMITTED: &str = "committed";
}

/// The commit graph of the `number`th kind of state of an operator, counted from 1.
pub(crate) fn commit_file(operator: StateOperator, number: usize) -> String {
    let operator = match operator {
        StateOperator::CausalConv => "causal_conv",
        StateOperator::GatedDeltaNet => "gated_delta_net",
        StateOperator::TokenHistory => "token_history",
    };
    match number {
        1 => format!("commit.{operator}.onnx"),
        number => format!("commit.{operator}.{number}.onnx"),
    }
}

/// The name of one layer's tensor.
pub(crate) fn expand(template: &str, layer: u32) -> String {
    template.replace("%d", &layer.to_string())
}
