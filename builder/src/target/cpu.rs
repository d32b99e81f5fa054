//! ONNX Runtime's CPU provider with Pawl's operators.

use genai_config_schema::StateLayout;

use super::TargetTable;
use crate::contract::symbols;
use crate::{ops, rope};

pub(super) static TABLE: TargetTable = TargetTable {
    provider: None,
    block_size: 32,
    state_layout: StateLayout::Bank,
    state_rows: symbols::BANK_ROWS,
    captures_in_mixed_steps: true,
    capture_counts: "capture_counts",
    capture_active: None,
    commit_graphs: false,
    conv_checkpoints: "checkpoints.%d.conv_state",
    recurrent_checkpoints: "checkpoints.%d.recurrent_state",
    position_limit: None,
    conv_weight: |channels, kernel| vec![channels, kernel],
    rotation: rope::per_token,
    paged_attention: ops::pawl::paged_attention,
    causal_conv: ops::pawl::causal_conv,
    gated_delta_net: ops::pawl::gated_delta_net,
};
