//! Gated DeltaNet.

use pawl_models::GatedDelta;

use super::convolution::{Convolution, convolve};
use super::norm::norm;
use super::projection::project;
use super::{LayerContext, stack, state};
use crate::contract::names;
use crate::error::BuildError;
use crate::graph::ir::Dtype;
use crate::graph::{GraphBuilder, Value};
use crate::ops::{self, Activation, DeltaNode};

/// Projections, convolution with SiLU, the delta rule, and a norm of each value head gated by `silu(z)`.
pub(crate) fn gated_delta(
    g: &mut GraphBuilder,
    cx: &LayerContext<'_>,
    mixer: &GatedDelta,
    x: &Value,
) -> Result<Value, BuildError> {
    let dtype = cx.plan.dtype;
    g.within("gated_delta", |g| {
        let projected = inputs(g, cx, mixer, x)?;
        let conv = Convolution {
            weight: &mixer.conv,
            channels: mixer.qkv.rows(),
            kernel: mixer.kernel,
            activation: Activation::Silu,
        };
        let qkv = convolve(g, cx, &conv, &projected.qkv)?;
        let rule = delta_rule(g, cx, mixer, &qkv, &projected)?;
        let heads = ops::columns_to_heads(g, "heads", &rule, mixer.value_heads)?;
        let normed = norm(g, "norm", dtype, &mixer.norm, &heads)?;
        let normed = ops::heads_to_columns(g, "columns", &normed)?;
        let gate = ops::silu(g, "silu", &projected.z)?;
        let gated = ops::mul(g, "gated", &normed, &gate)?;
        project(g, cx, "output", &gated, &mixer.output)
    })
}

/// What the layer reads of its input, a row per token.
#[derive(Debug)]
struct Projected {
    qkv: Value,
    z: Value,
    beta: Value,
    decay: Value,
}

/// All four projections in one.
fn inputs(
    g: &mut GraphBuilder,
    cx: &LayerContext<'_>,
    mixer: &GatedDelta,
    x: &Value,
) -> Result<Projected, BuildError> {
    let weights = [&mixer.qkv, &mixer.z, &mixer.b, &mixer.a];
    let weight = stack(g, "input", &weights)?;
    let projected = project(g, cx, "input", x, &weight)?;
    let parts = [
        ("qkv", mixer.qkv.rows()),
        ("z", mixer.z.rows()),
        ("beta", mixer.b.rows()),
        ("decay", mixer.a.rows()),
    ];
    let [qkv, z, beta, decay] = ops::split_columns(g, "split", &projected, parts)?;
    Ok(Projected {
        qkv,
        z,
        beta,
        decay,
    })
}

/// The recurrence with its state, which is float32 on every target.
fn delta_rule(
    g: &mut GraphBuilder,
    cx: &LayerContext<'_>,
    mixer: &GatedDelta,
    qkv: &Value,
    projected: &Projected,
) -> Result<Value, BuildError> {
    let target = cx.plan.target;
    let a_log = g.weight("a_log", Dtype::F32, &mixer.a_log)?;
    let dt_bias = g.weight("dt_bias", Dtype::F32, &mixer.dt_bias)?;
    let row = [mixer.value_heads, mixer.value_dim, mixer.key_dim];
    let past = state::fixed_input(g, cx, names::RECURRENT, Dtype::F32, row)?;
    let node = DeltaNode {
        qkv,
        decay: &projected.decay,
        beta: &projected.beta,
        a_log: &a_log,
        dt_bias: &dt_bias,
        state: &past,
        cumulative_lengths: &cx.step.cumulative_lengths,
        rows: cx.step.rows(),
        capture: cx.step.capture(),
        key_heads: mixer.key_heads,
    };
    let values = (target.gated_delta_net)(g, "delta_rule", &node)?;
    let checkpoints = target.recurrent_checkpoints;
    state::fixed_outputs(g, cx, names::RECURRENT, checkpoints, &values);
    Ok(values.output)
}
