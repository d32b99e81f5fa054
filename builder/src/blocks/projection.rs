//! Projections, and how their weights are stored.

use pawl_models::Weight;

use super::LayerContext;
use crate::error::BuildError;
use crate::graph::ir::Dtype;
use crate::graph::{GraphBuilder, Value};
use crate::ops;
use crate::quantized;

/// How the weights of a graph's projections are stored. Everything else (embedding, norms, convolutions) is as the
/// activations are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    /// In the type of the activations.
    Whole(Dtype),
    /// In 8 bits where a matrix allows it, and in this type otherwise.
    Int8(Dtype),
}

/// The weights of one projection, of `[out, in]`.
#[derive(Clone, Debug)]
pub(crate) enum Projection {
    Whole(Value),
    Int8 { values: Value, scales: Value },
}

impl Precision {
    /// The weights of a projection under the open scope, as initializers named after `<name>.weight`.
    pub(super) fn weights(
        self,
        g: &mut GraphBuilder,
        name: &str,
        weight: &Weight,
    ) -> Result<Projection, BuildError> {
        let name = format!("{name}.weight");
        match self {
            Self::Int8(_) if quantized::shape(weight).is_some() => {
                let (values, scales) = g.quantized_weight(&name, weight)?;
                Ok(Projection::Int8 { values, scales })
            }
            Self::Int8(dtype) | Self::Whole(dtype) => {
                Ok(Projection::Whole(g.weight(&name, dtype, weight)?))
            }
        }
    }

    /// Whether a matrix is stored otherwise than in the type of the activations.
    pub(super) fn quantizes(self, weight: &Weight) -> bool {
        matches!(self, Self::Int8(_)) && quantized::shape(weight).is_some()
    }
}

impl Projection {
    /// `[T, in] -> [T, out]`.
    pub(super) fn apply(
        &self,
        g: &mut GraphBuilder,
        name: &str,
        x: &Value,
    ) -> Result<Value, BuildError> {
        match self {
            Self::Whole(weight) => ops::gemm(g, name, x, weight),
            Self::Int8 { values, scales } => {
                ops::microsoft::matmul_nbits(g, name, x, values, scales)
            }
        }
    }
}

/// A projection of a layer, with its weights as `<name>.weight`.
pub(super) fn project(
    g: &mut GraphBuilder,
    cx: &LayerContext<'_>,
    name: &str,
    x: &Value,
    weight: &Weight,
) -> Result<Value, BuildError> {
    let weights = cx.precision.weights(g, name, weight)?;
    weights.apply(g, name, x)
}
