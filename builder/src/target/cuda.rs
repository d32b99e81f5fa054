//! ONNX Runtime's CUDA provider with its own operators.

use genai_config_schema::StateLayout;

use super::TargetTable;
use crate::contract::symbols;
use crate::{ops, rope};

pub(super) static TABLE: TargetTable = TargetTable {
    provider: Some("cuda"),
    block_size: 256,
    state_layout: StateLayout::Rows,
    state_rows: symbols::ROWS,
    captures_in_mixed_steps: false,
    capture_counts: "state_update_capture_count",
    capture_active: Some("state_update_active"),
    commit_graphs: true,
    conv_checkpoints: "state_update.%d.conv_value",
    recurrent_checkpoints: "state_update.%d.recurrent_capsule",
    position_limit: Some(262_144),
    conv_weight: |channels, kernel| vec![channels, 1, kernel],
    rotation: rope::per_position,
    paged_attention: ops::microsoft::paged_attention,
    causal_conv: ops::microsoft::varlen_causal_conv,
    gated_delta_net: ops::microsoft::gated_delta_net,
};
