//! Attention with an output gate: `q_proj` holds query and gate rows of each head, one block after the other.

use crate::config::Config;
use crate::decoder::{Dims, attention_scale};
use crate::description::{Attention, Rope};
use crate::error::DescribeError;
use crate::rope::{RopeDefaults, rope};
use crate::tensors::Tensors;

const ROPE: RopeDefaults = RopeDefaults {
    theta: 10_000.0,
    partial_rotary_factor: Some(0.25),
};

/// What transformers takes where the file has no `head_dim`.
const HEAD_DIM: u64 = 256;

/// Dimensions of gated attention.
#[derive(Clone, Debug)]
pub(super) struct GatedAttention {
    dims: Dims,
    head_dim: u64,
    /// The interleaved multimodal rotation of these models turns text positions as the plain one does: its three
    /// position components are equal.
    rope: Rope,
}

impl GatedAttention {
    /// Reads the dimensions; `fits` says whether the checkpoint's heads have that many elements.
    pub(super) fn read(
        config: &Config<'_>,
        dims: Dims,
        fits: impl Fn(u64) -> bool,
    ) -> Result<Self, DescribeError> {
        let head_dim = dims.head_dim(config, fits, Some(HEAD_DIM))?;
        Ok(Self {
            dims,
            head_dim,
            rope: rope(config, head_dim, dims.context_length, ROPE)?,
        })
    }

    pub(super) fn describe(
        &self,
        tensors: &mut Tensors<'_>,
        prefix: &str,
        epsilon: f32,
    ) -> Attention {
        let head_dim = self.head_dim;
        let Dims {
            hidden_size,
            heads,
            kv_heads,
            ..
        } = self.dims;
        let keys = kv_heads * head_dim;
        let [query, gate] = tensors.interleaved(
            &format!("{prefix}q_proj.weight"),
            heads,
            head_dim,
            hidden_size,
        );
        Attention {
            heads,
            kv_heads,
            head_dim,
            scale: attention_scale(head_dim),
            query,
            key: tensors.weight(format!("{prefix}k_proj.weight"), &[keys, hidden_size]),
            value: tensors.weight(format!("{prefix}v_proj.weight"), &[keys, hidden_size]),
            gate: Some(gate),
            query_norm: Some(tensors.offset_norm(
                format!("{prefix}q_norm.weight"),
                head_dim,
                epsilon,
            )),
            key_norm: Some(tensors.offset_norm(
                format!("{prefix}k_norm.weight"),
                head_dim,
                epsilon,
            )),
            rope: self.rope.clone(),
            output: tensors.weight(
                format!("{prefix}o_proj.weight"),
                &[hidden_size, heads * head_dim],
            ),
        }
    }
}
