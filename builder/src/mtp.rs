//! The drafting head's graph.

use pawl_models::{Mixer, MtpHead};

use crate::blocks::{self, LayerContext, Precision};
use crate::contract::{StepInputs, names, symbols};
use crate::error::BuildError;
use crate::graph::ir::Graph;
use crate::graph::{GraphBuilder, Place};
use crate::ops;
use crate::options::Dtype;
use crate::plan::Plan;
use crate::quantized::BLOCK_EXTENT;
use crate::rope::Rotations;
use crate::wiring::HeadHidden;

/// The head as a model of one layer: it reads tokens and hidden rows, keeps its own key/value cache as layer 0, and
/// shares embedding and, unless its weights are in 8 bits, output projection with the model.
///
/// # Errors
/// [`BuildError::Unsupported`] if the head's layer keeps anything but a key/value cache: only that is taken back by
/// forgetting its length.
pub(crate) fn graph(plan: &Plan<'_>, head: &MtpHead) -> Result<Graph, BuildError> {
    if !matches!(head.layer.mixer, Mixer::Attention(_)) {
        return Err(not_attention(head));
    }
    let mut graph = GraphBuilder::new(names::MTP_FILE);
    let g = &mut graph;
    let width = plan.description.hidden_size.into();
    let step = StepInputs::declare(g)?;
    let hidden = g.input(names::HIDDEN_STATES, plan.dtype, [symbols::TOKENS, width])?;
    let rotations = Rotations::emit(g, plan, [&head.layer], &step.positions)?;
    let embedding = blocks::embedding_table(g, plan)?;
    let embedded = ops::gather_rows(g, "embedding", &embedding, &step.input_ids)?;
    let x = blocks::fuse_hidden(g, plan, head, &embedded, &hidden)?;
    let cx = LayerContext {
        plan,
        step: &step,
        rotations: &rotations,
        precision: plan.head_precision(),
        index: 0,
    };
    let x = blocks::layer(g, &cx, &head.layer, &x)?;
    let own = blocks::norm(g, "final_norm", plan.dtype, &head.final_norm, &x)?;
    let projection = blocks::output_projection(g, plan, plan.head_precision(), &embedding)?;
    blocks::lm_head(g, &step, &own, &projection)?;
    let chained = match plan.wiring.hidden {
        HeadHidden::AfterNorm => &own,
        HeadHidden::BeforeNorm => &x,
    };
    g.output(Place::Result, names::HIDDEN_STATES_OUT, chained);
    graph.finish()
}

/// What the head keeps in the type of the model's weights although 8 bits were chosen, if anything.
pub(crate) fn warning(plan: &Plan<'_>, graphs: &[Graph]) -> Option<String> {
    let head = graphs.iter().find(|graph| graph.file == names::MTP_FILE)?;
    let whole = head.nodes.iter().filter(|node| node.op_type == "Gemm");
    let whole: Vec<&str> = whole.map(|node| node.name.as_str()).collect();
    let quantized = matches!(plan.head_precision(), Precision::Int8(_));
    (quantized && !whole.is_empty()).then(|| {
        format!(
            "{}: {} stay in {}: the widths of their rows are no multiples of {BLOCK_EXTENT}",
            head.file,
            whole.join(", "),
            Dtype::F32,
        )
    })
}

/// The refusal of a head whose layer keeps another state.
pub(crate) fn not_attention(head: &MtpHead) -> BuildError {
    BuildError::Unsupported {
        part: format!("a drafting head with a {} layer", head.layer.kind),
        reason: "its layer must be attention; --no-mtp leaves the head out".to_owned(),
    }
}
