//! Gated short convolution.

use pawl_models::ShortConv;

use super::LayerContext;
use super::convolution::{Convolution, convolve};
use crate::error::BuildError;
use crate::graph::{GraphBuilder, Value};
use crate::ops::{self, Activation};

/// `(B, C, u) = split(input(x)); output(C * conv(B * u))`. The state holds samples of `B * u`.
pub(crate) fn short_conv(
    g: &mut GraphBuilder,
    cx: &LayerContext<'_>,
    mixer: &ShortConv,
    x: &Value,
) -> Result<Value, BuildError> {
    let dtype = cx.plan.dtype;
    g.within("short_conv", |g| {
        let weight = g.weight("input.weight", dtype, &mixer.input)?;
        let projected = ops::gemm(g, "input", x, &weight)?;
        let channels = mixer.channels;
        let parts = [("b", channels), ("c", channels), ("u", channels)];
        let [b, c, u] = ops::split_columns(g, "split", &projected, parts)?;
        let gated = ops::mul(g, "gated", &b, &u)?;
        let conv = Convolution {
            weight: &mixer.conv,
            channels,
            kernel: mixer.kernel,
            activation: Activation::None,
        };
        let mixed = convolve(g, cx, &conv, &gated)?;
        let product = ops::mul(g, "product", &c, &mixed)?;
        let weight = g.weight("output.weight", dtype, &mixer.output)?;
        ops::gemm(g, "output", &product, &weight)
    })
}
