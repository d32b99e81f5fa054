//! One layer of the plan.

use pawl_models::{Layer, Mixer};

use super::LayerContext;
use super::attention::attention;
use super::gated_delta::gated_delta;
use super::mlp::mlp;
use super::norm::norm;
use super::short_conv::short_conv;
use crate::error::BuildError;
use crate::graph::{GraphBuilder, Value};
use crate::ops;

/// `x += mixer(mixer_norm(x)); x += mlp(mlp_norm(x))`.
pub(crate) fn layer(
    g: &mut GraphBuilder,
    cx: &LayerContext<'_>,
    layer: &Layer,
    x: &Value,
) -> Result<Value, BuildError> {
    let dtype = cx.plan.dtype;
    g.within(&format!("layers.{}", cx.index), |g| {
        let normed = norm(g, "mixer_norm", dtype, &layer.mixer_norm, x)?;
        let mixed = match &layer.mixer {
            Mixer::Attention(mixer) => attention(g, cx, mixer, &normed)?,
            Mixer::GatedDelta(mixer) => gated_delta(g, cx, mixer, &normed)?,
            Mixer::ShortConv(mixer) => short_conv(g, cx, mixer, &normed)?,
        };
        let x = ops::add(g, "mixer_residual", x, &mixed)?;
        let normed = norm(g, "mlp_norm", dtype, &layer.mlp_norm, &x)?;
        let mapped = mlp(g, cx, &layer.mlp, &normed)?;
        ops::add(g, "mlp_residual", &x, &mapped)
    })
}
