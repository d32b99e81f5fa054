//! Gated MLP.

use pawl_models::Mlp;

use super::projection::project;
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
    g.within("mlp", |g| {
        let weight = stack(g, "gate_up", &[&mlp.gate, &mlp.up])?;
        let gate_up = project(g, cx, "gate_up", x, &weight)?;
        let parts = [("gate", mlp.gate.rows()), ("up", mlp.up.rows())];
        let [gate, up] = ops::split_columns(g, "split", &gate_up, parts)?;
        let gate = ops::silu(g, "silu", &gate)?;
        let product = ops::mul(g, "product", &gate, &up)?;
        project(g, cx, "down", &product, &mlp.down)
    })
}
