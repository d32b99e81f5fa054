//! The drafting head: one attention layer over the next token's embedding and the model's hidden row.

use crate::config::Config;
use crate::description::MtpHead;
use crate::error::DescribeError;
use crate::refuse::refuse;
use crate::tensors::Tensors;

use super::{ATTENTION, Plan};

/// Whether the file declares a head.
pub(super) fn declared(config: &Config<'_>) -> Result<bool, DescribeError> {
    const KEY: &str = "mtp_num_hidden_layers";
    match config.text.integer(KEY, 0..=u64::MAX)? {
        None | Some(0) => Ok(false),
        Some(1) => Ok(true),
        Some(more) => Err(refuse(config.text.path(KEY), "0 or 1", more.to_string())),
    }
}

pub(super) fn describe(plan: &Plan, tensors: &mut Tensors<'_>) -> MtpHead {
    let hidden = plan.dims.hidden_size;
    let name = |name: &str| format!("mtp.{name}.weight");
    MtpHead {
        embedding_norm: plan.norm(tensors, name("pre_fc_norm_embedding")),
        hidden_norm: plan.norm(tensors, name("pre_fc_norm_hidden")),
        fc: tensors.weight(name("fc"), &[hidden, 2 * hidden]),
        layer: plan.layer(tensors, "mtp.layers.0.", ATTENTION),
        final_norm: plan.norm(tensors, name("norm")),
    }
}
