//! Parts of a model, put together from operators.
//!
//! A block takes the graph, what surrounds it, its description and its input, and returns its output. Blocks with
//! state declare their own graph inputs and outputs.

mod attention;
mod convolution;
mod embedding;
mod gated_delta;
mod layer;
mod lm_head;
mod mlp;
mod mtp_head;
mod norm;
mod projection;
mod short_conv;
mod state;

use pawl_models::Weight;

use crate::contract::StepInputs;
use crate::error::BuildError;
use crate::graph::GraphBuilder;
use crate::plan::Plan;
use crate::rope::Rotations;

pub(crate) use embedding::{embedding_table, output_projection};
pub(crate) use layer::layer;
pub(crate) use lm_head::lm_head;
pub(crate) use mtp_head::fuse_hidden;
pub(crate) use norm::norm;
pub(crate) use projection::{Precision, Projection};

/// What surrounds a layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerContext<'a> {
    pub(crate) plan: &'a Plan<'a>,
    pub(crate) step: &'a StepInputs,
    pub(crate) rotations: &'a Rotations<'a>,
    /// Of the layer's projections.
    pub(crate) precision: Precision,
    /// Number of the layer in the names of its states.
    pub(crate) index: u32,
}

/// One projection that computes several: their rows below each other.
fn stack(g: &GraphBuilder, name: &str, weights: &[&Weight]) -> Result<Weight, BuildError> {
    Weight::concat(weights).map_err(|error| {
        g.check(name)
            .defect("weights", "rows to stack", &error.to_string())
    })
}
