//! Gated MLP.

use pawl_models::Mlp;

use super::{LayerContext, stack};
use crate::error::BuildError;
use crate::graph::{GraphBuilder, Value};
use crate::ops;

/// `down(silu(gate(x)) * up(x))`; gate and up are one projection.
pub(crate) fn mlp(
    g: &mut GraphBuilder,
    cx: &LayerContext<'_>,
    mlp: &Mlp,
    x: &Value,
) -> Result<Value, BuildError> {
    let dtype = cx.plan.dtype;
    g.within("mlp", |g| {
        let weight = stack(g, "gate_up", &[&mlp.gate, &mlp.up])?;
        let weight = g.weight("gate_up.weight", dtype, &weight)?;
        let gate_up = ops::gemm(g, "gate_up", x, &weight)?;
        let parts = [("gate", mlp.gate.rows()), ("up", mlp.up.rows())];
        let [gate, up] = ops::split_columns(g, "split", &gate_up, parts)?;
        let gate = ops::silu(g, "silu", &gate)?;
        let product = ops::mul(g, "product", &gate, &up)?;
        let weight = g.weight("down.weight", dtype, &mlp.down)?;
        ops::gemm(g, "down", &product, &weight)
    })
}
