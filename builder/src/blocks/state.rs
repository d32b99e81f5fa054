//! Graph inputs and outputs of one layer's states.

use super::LayerContext;
use crate::contract::names::{self, StateNames};
use crate::contract::symbols;
use crate::error::BuildError;
use crate::graph::ir::{Dim, Dtype};
use crate::graph::{GraphBuilder, Place, Value};
use crate::ops::StateValues;

/// Declares one half of a paged key/value cache, `[num_blocks, block_size, kv_heads, head_dim]`.
pub(super) fn cache_input(
    g: &mut GraphBuilder,
    cx: &LayerContext<'_>,
    names: StateNames,
    kv_heads: u64,
    head_dim: u64,
) -> Result<Value, BuildError> {
    let dims = [
        symbols::BLOCKS,
        symbols::BLOCK_SIZE,
        kv_heads.into(),
        head_dim.into(),
    ];
    g.input(names::expand(names.input, cx.index), cx.plan.dtype, dims)
}

/// Declares the cache after the step.
pub(super) fn cache_output(
    g: &mut GraphBuilder,
    cx: &LayerContext<'_>,
    names: StateNames,
    cache: &Value,
) {
    g.output(Place::State, names::expand(names.output, cx.index), cache);
}

/// Declares a fixed state of the given row shape.
pub(super) fn fixed_input<const N: usize>(
    g: &mut GraphBuilder,
    cx: &LayerContext<'_>,
    names: StateNames,
    dtype: Dtype,
    row: [u64; N],
) -> Result<Value, BuildError> {
    let mut dims = vec![cx.plan.target.state_rows];
    dims.extend(row.map(Dim::Static));
    g.input(names::expand(names.input, cx.index), dtype, dims)
}

/// Declares the state after the step and its checkpoints, which are an output of their own.
pub(super) fn fixed_outputs(
    g: &mut GraphBuilder,
    cx: &LayerContext<'_>,
    names: StateNames,
    checkpoints: &str,
    values: &StateValues,
) {
    let output = names::expand(names.output, cx.index);
    g.output(Place::State, output, &values.state);
    if let Some(kept) = &values.checkpoints {
        let name = names::expand(checkpoints, cx.index);
        g.output(Place::Checkpoint, name, kept);
    }
}
