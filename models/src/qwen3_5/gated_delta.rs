//! Gated DeltaNet: names and dimensions.

use crate::config::Config;
use crate::decoder::{head_count, head_size, kernel};
use crate::description::GatedDelta;
use crate::error::DescribeError;
use crate::tensors::Tensors;

/// Dimensions of Gated DeltaNet.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeltaDims {
    key_heads: u64,
    value_heads: u64,
    key_dim: u64,
    value_dim: u64,
    kernel: u64,
}

impl DeltaDims {
    pub(super) fn read(config: &Config<'_>) -> Result<Self, DescribeError> {
        const VALUE_HEADS: &str = "linear_num_value_heads";
        let key_heads = head_count(config, "linear_num_key_heads")?;
        let value_heads = head_count(config, VALUE_HEADS)?;
        if !value_heads.is_multiple_of(key_heads) {
            let expected = format!("a multiple of linear_num_key_heads ({key_heads})");
            return Err(config.text.error(VALUE_HEADS, expected));
        }
        Ok(Self {
            key_heads,
            value_heads,
            key_dim: head_size(config, "linear_key_head_dim")?,
            value_dim: head_size(config, "linear_value_head_dim")?,
            kernel: kernel(config, "linear_conv_kernel_dim")?,
        })
    }

    pub(super) fn describe(
        &self,
        tensors: &mut Tensors<'_>,
        prefix: &str,
        hidden: u64,
        epsilon: f32,
    ) -> GatedDelta {
        let Self {
            key_heads,
            value_heads,
            key_dim,
            value_dim,
            kernel,
        } = *self;
        let values = value_heads * value_dim;
        let channels = 2 * key_heads * key_dim + values;
        let mut weight =
            |name: &str, shape: &[u64]| tensors.weight(format!("{prefix}{name}"), shape);
        GatedDelta {
            key_heads,
            value_heads,
            key_dim,
            value_dim,
            kernel,
            qkv: weight("in_proj_qkv.weight", &[channels, hidden]),
            z: weight("in_proj_z.weight", &[values, hidden]),
            a: weight("in_proj_a.weight", &[value_heads, hidden]),
            b: weight("in_proj_b.weight", &[value_heads, hidden]),
            a_log: weight("A_log", &[value_heads]),
            dt_bias: weight("dt_bias", &[value_heads]),
            output: weight("out_proj.weight", &[hidden, values]),
            conv: tensors.convolution(format!("{prefix}conv1d.weight"), channels, kernel),
            // The only norm of these models that is stored as it is, not as its distance from 1.
            norm: tensors.norm(format!("{prefix}norm.weight"), value_dim, epsilon),
        }
    }
}
