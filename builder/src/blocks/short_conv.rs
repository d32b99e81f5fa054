//! Gated short convolution.

use pawl_models::ShortConv;

use super::LayerContext;
use super::convolution::{Convolution, convolve};
use super::projection::project;
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
    g.within("short_conv", |g| {
        let projected = project(g, cx, "input", x, &mixer.input)?;
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
        project(g, cx, "output", &product, &mixer.output)
    })
}
