//! What one loaded decoder keeps between steps, and the buffers that hold it.

use crate::device::{Buffer, ElementType};
use genai_config_schema::{
    CheckpointAlignment, CheckpointForm, StateDecay, StateLayout, StateOperator,
};

/// All persistent state of one decoder graph, in manifest order.
#[derive(Clone, Debug, Default)]
pub(crate) struct StateSpec {
    /// Paged key/value layers; all share one geometry.
    pub(crate) paged: Option<PagedSpec>,
    /// Fixed-state tensors, one bank each.
    pub(crate) fixed: Vec<FixedSpec>,
    /// Whether operators capture in a step that also holds prefill rows.
    pub(crate) captures_in_mixed_steps: bool,
}

impl StateSpec {
    /// As [`capture_capacity`], of all its tensors.
    pub(crate) fn capture_capacity(&self) -> usize {
        capture_capacity(&self.fixed)
    }
}

/// The most tokens of a row that captures: the smallest checkpoint count, 0 where a tensor has no checkpoint output.
pub(crate) fn capture_capacity<'s>(fixed: impl IntoIterator<Item = &'s FixedSpec>) -> usize {
    let counts = fixed.into_iter().map(|fixed| {
        let checkpoints = fixed.checkpoints.as_ref();
        checkpoints.map_or(0, |checkpoints| checkpoints.count)
    });
    counts.min().unwrap_or(usize::MAX)
}

/// Paged key/value cache of one graph. Cache tensors are `[blocks, block_size, kv_heads, head_dim]`.
#[derive(Clone, Debug)]
pub(crate) struct PagedSpec {
    /// Tensor names per layer.
    pub(crate) layers: Vec<PagedNames>,
    /// Tokens per block.
    pub(crate) block_size: usize,
    /// Key/value heads.
    pub(crate) kv_heads: usize,
    /// Elements per head.
    pub(crate) head_dim: usize,
}

/// Graph names of one paged layer.
#[derive(Clone, Debug)]
pub(crate) struct PagedNames {
    pub(crate) layer: u32,
    pub(crate) key_input: String,
    pub(crate) key_output: String,
    pub(crate) value_input: String,
    pub(crate) value_output: String,
}

/// One fixed-state tensor. Its bank is `[2 * slots + 1, row_shape...]`: bank 0, bank 1, the row of a fresh request.
#[derive(Clone, Debug)]
pub(crate) struct FixedSpec {
    pub(crate) layer: u32,
    pub(crate) operator: StateOperator,
    /// How the operator meets the pool.
    pub(crate) layout: StateLayout,
    /// Of the state and of its checkpoints.
    pub(crate) element: ElementType,
    /// The id that fills the history of a request that has run no token; 0 for other states.
    pub(crate) fresh: u32,
    pub(crate) input: String,
    pub(crate) output: String,
    /// Shape of one row: `[C, K-1]` for a convolution, `[Hv, Dv, Dk]` for Gated DeltaNet, `[tokens]` for a history.
    pub(crate) row_shape: Vec<usize>,
    /// Key heads, needed to read delta transitions; `None` for convolutions.
    pub(crate) key_heads: Option<usize>,
    /// What a delta transition decays by one factor.
    pub(crate) decay: StateDecay,
    pub(crate) checkpoints: Option<CheckpointSpec>,
}

/// The separate checkpoint output of one fixed-state operator, of the shape that [`FixedSpec::checkpoint_shape`] says.
#[derive(Clone, Debug)]
pub(crate) struct CheckpointSpec {
    pub(crate) output: String,
    pub(crate) count: usize,
    pub(crate) form: CheckpointForm,
    pub(crate) alignment: CheckpointAlignment,
    /// Elements of one slot of one row.
    pub(crate) width: usize,
}

impl FixedSpec {
    /// Shape of the checkpoint output of a step of `rows` rows that captures; `None` where there is none.
    ///
    /// | form | layout | shape |
    /// |---|---|---|
    /// | `state` | | `[count, rows, row...]` |
    /// | `update` | `bank` | `[count, rows, width]` |
    /// | `update` | `rows` | `[rows, count, width]` |
    /// | `update` of Gated DeltaNet | `rows` | `[rows, count * width]`: all decays, all keys, all deltas |
    pub(crate) fn checkpoint_shape(&self, rows: usize) -> Option<Vec<usize>> {
        let axes = self.checkpoint_axes()?.into_iter();
        Some(axes.map(|axis| axis.unwrap_or(rows)).collect())
    }

    /// Extents of the checkpoint output; `None` in the list is the number of rows of the step.
    pub(crate) fn checkpoint_axes(&self) -> Option<Vec<Option<usize>>> {
        let checkpoints = self.checkpoints.as_ref()?;
        let (count, width) = (checkpoints.count, checkpoints.width);
        Some(match (checkpoints.form, self.layout, self.operator) {
            (CheckpointForm::State, _, _) => {
                let row = self.row_shape.iter().copied().map(Some);
                [Some(count), None].into_iter().chain(row).collect()
            }
            (CheckpointForm::Update, StateLayout::Bank, _) => {
                vec![Some(count), None, Some(width)]
            }
            (CheckpointForm::Update, StateLayout::Rows, StateOperator::GatedDeltaNet) => {
                vec![None, Some(count.saturating_mul(width))]
            }
            (CheckpointForm::Update, StateLayout::Rows, _) => {
                vec![None, Some(count), Some(width)]
            }
        })
    }
}

/// Elements of one transition, the slot of an `update` checkpoint: the input values of a convolution; decays, key and
/// delta of Gated DeltaNet; all of a history. `None` for a row without the axes of its operator, for value heads that are no
/// multiple of the key heads, and beyond 2^64.
pub(crate) fn transition_width(
    operator: StateOperator,
    row: &[u64],
    (key_heads, decay): (Option<u64>, StateDecay),
) -> Option<u64> {
    match (operator, row) {
        (StateOperator::CausalConv, [channels, _]) => Some(*channels),
        (StateOperator::GatedDeltaNet, [heads, value_dim, key_dim]) => {
            let key_heads = key_heads.filter(|n| *n > 0 && heads.is_multiple_of(*n))?;
            let key = key_heads.checked_mul(*key_dim)?;
            let delta = heads.checked_mul(*value_dim)?;
            let decays = match decay {
                StateDecay::PerHead => *heads,
                StateDecay::PerKey => heads.checked_mul(*key_dim)?,
            };
            decays.checked_add(key)?.checked_add(delta)
        }
        (StateOperator::TokenHistory, [tokens]) => Some(*tokens),
        _ => None,
    }
}

/// Buffers of one paged layer.
#[derive(Debug)]
pub(crate) struct PagedBuffers {
    pub(crate) key: Buffer,
    pub(crate) value: Buffer,
}
