//! The model's graph: embedding, the layers of the plan, final norm, logits.

use pawl_models::ModelDescription;

use crate::blocks::{self, LayerContext, Precision};
use crate::contract::{StepInputs, names};
use crate::error::BuildError;
use crate::graph::ir::Graph;
use crate::graph::{GraphBuilder, Place};
use crate::options::BuildOptions;
use crate::plan::Plan;
use crate::rope::Rotations;
use crate::wiring::HeadHidden;
use crate::{mtp, ops};

/// Every graph of a model: the decoder and, where it is exported, the drafting head.
///
/// # Errors
/// [`BuildError::Unsupported`] for a part that the target has no operator for; [`BuildError::Defect`] for a
/// description that contradicts itself.
pub(crate) fn emit(
    description: &ModelDescription,
    options: &BuildOptions,
) -> Result<Vec<Graph>, BuildError> {
    let plan = Plan::new(description, options)?;
    let mut graphs = vec![decoder(&plan)?];
    if let Some(head) = plan.head {
        graphs.push(mtp::graph(&plan, head)?);
    }
    Ok(graphs)
}

/// What a build of these options, whose graphs these are, does otherwise than a user may expect, for the report.
///
/// # Errors
/// As [`emit`].
pub(crate) fn warnings(
    description: &ModelDescription,
    options: &BuildOptions,
    graphs: &[Graph],
) -> Result<Vec<String>, BuildError> {
    let plan = Plan::new(description, options)?;
    let mut warnings = plan.warnings(options);
    warnings.extend(mtp::warning(&plan, graphs));
    Ok(warnings)
}

fn decoder(plan: &Plan<'_>) -> Result<Graph, BuildError> {
    let mut graph = GraphBuilder::new(names::MODEL_FILE);
    let g = &mut graph;
    let layers = &plan.description.layers;
    let precision = Precision::Whole(plan.dtype);
    let mut step = StepInputs::declare(g)?;
    step.declare_fixed_state(g, plan)?;
    let rotations = Rotations::emit(g, plan, layers, &step.positions)?;
    let embedding = blocks::embedding_table(g, plan)?;
    let mut x = ops::gather_rows(g, "embedding", &embedding, &step.input_ids)?;
    for (index, layer) in (0..).zip(layers) {
        let cx = LayerContext {
            plan,
            step: &step,
            rotations: &rotations,
            precision,
            index,
        };
        x = blocks::layer(g, &cx, layer, &x)?;
    }
    let norm = &plan.description.final_norm;
    let hidden = blocks::norm(g, "final_norm", plan.dtype, norm, &x)?;
    let projection = blocks::output_projection(g, plan, precision, &embedding)?;
    blocks::lm_head(g, &step, &hidden, &projection)?;
    if plan.head.is_some() {
        let read = match plan.wiring.hidden {
            HeadHidden::AfterNorm => &hidden,
            HeadHidden::BeforeNorm => &x,
        };
        g.output(Place::Result, names::HIDDEN_STATES, read);
    }
    graph.finish()
}

#[cfg(test)]
mod tests;
