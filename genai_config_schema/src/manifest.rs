//! The state a graph declares, as the runtime uses it: the same for both spellings.

use crate::template::expand;
use crate::{
    CheckpointAlignment, CheckpointForm, ConfigCode, ConfigError, ConfigErrors, Decoder,
    GenaiConfig, StateGroup, StateKind, StateLayout, StateOperator,
};

/// How a file names its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Spelling {
    /// Names in each group's `bindings`, kind `fixed`.
    Pawl,
    /// onnxruntime-genai 0.18: names under `inputs` and `outputs`, kinds `fixed_conv` and
    /// `fixed_recurrent`.
    Genai018,
}

/// Every piece of state of a decoder.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Manifest {
    /// The spelling it was read from.
    pub spelling: Spelling,
    /// The key/value cache; `None` when no layer attends.
    pub paged: Option<PagedGroup>,
    /// Fixed state, group by group, then by layer.
    pub fixed: Vec<FixedTensor>,
    /// Whether one step may capture checkpoints for some rows and not for others.
    pub captures_in_mixed_steps: bool,
}

/// The key/value cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PagedGroup {
    /// Its layers, in the file's order.
    pub layers: Vec<PagedLayer>,
}

/// Tensor names of one layer's key/value cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PagedLayer {
    /// Layer id.
    pub layer: u32,
    /// Key cache before the step.
    pub key_input: String,
    /// Key cache after the step.
    pub key_output: String,
    /// Value cache before the step.
    pub value_input: String,
    /// Value cache after the step.
    pub value_output: String,
}

/// One layer's fixed state of one operator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FixedTensor {
    /// Layer id.
    pub layer: u32,
    /// The operator that owns it.
    pub operator: StateOperator,
    /// How it meets the pool.
    pub layout: StateLayout,
    /// State before the step.
    pub input: String,
    /// State after the step.
    pub output: String,
    /// Checkpoints; `None` when the graph has none.
    pub checkpoints: Option<Checkpoints>,
    /// Key heads, where the operator has them and the file says so.
    pub key_heads: Option<u32>,
}

/// The checkpoint output of a fixed state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checkpoints {
    /// Output name.
    pub output: String,
    /// Slots, 1 to 8.
    pub count: u32,
    /// What a slot holds.
    pub form: CheckpointForm,
    /// Where local tokens lie among the slots.
    pub alignment: CheckpointAlignment,
}

impl Spelling {
    /// The spelling of a decoder's groups; a paged group without bindings alone is genai's.
    pub(crate) fn of(decoder: &Decoder) -> Self {
        let pawl = |group: &StateGroup| group.kind == StateKind::Fixed || group.bindings.is_some();
        if decoder.state_groups.iter().any(pawl) {
            Self::Pawl
        } else {
            Self::Genai018
        }
    }
}

impl GenaiConfig {
    /// The declared state, resolved to names per layer.
    ///
    /// # Errors
    ///
    /// Everything that [`validate`](Self::validate) finds, and `missing_key` for a file without
    /// `state_groups`.
    pub fn manifest(&self) -> Result<Manifest, ConfigErrors> {
        self.validate()?;
        let decoder = &self.model.decoder;
        if decoder.state_groups.is_empty() {
            return Err(ConfigError::new(
                ConfigCode::MissingKey,
                "model.decoder.state_groups",
                "the graph does not declare its state",
            )
            .into());
        }
        Ok(resolve(decoder))
    }
}

/// Resolves a decoder whose groups have been checked.
pub(crate) fn resolve(decoder: &Decoder) -> Manifest {
    let spelling = Spelling::of(decoder);
    let mut paged: Option<PagedGroup> = None;
    let mut fixed = Vec::new();
    for group in &decoder.state_groups {
        if group.kind == StateKind::PagedKv {
            paged
                .get_or_insert(PagedGroup { layers: Vec::new() })
                .layers
                .extend(paged_layers(decoder, group));
        } else {
            fixed.extend(fixed_tensors(decoder, group));
        }
    }
    Manifest {
        spelling,
        paged,
        fixed,
        captures_in_mixed_steps: decoder.captures_in_mixed_steps.unwrap_or(false),
    }
}

fn paged_layers(decoder: &Decoder, group: &StateGroup) -> Vec<PagedLayer> {
    let bindings = group.bindings.as_ref();
    let key = bindings.and_then(|bindings| bindings.key.as_ref());
    let value = bindings.and_then(|bindings| bindings.value.as_ref());
    let (inputs, outputs) = (&decoder.inputs, &decoder.outputs);
    let pick = |bound: Option<&String>, named: &Option<String>, default: &str| {
        bound
            .or(named.as_ref())
            .map_or_else(|| default.to_owned(), Clone::clone)
    };
    let key_input = pick(
        key.map(|b| &b.input),
        &inputs.past_key_names,
        "past_key_values.%d.key",
    );
    let key_output = pick(
        key.map(|b| &b.output),
        &outputs.present_key_names,
        "present.%d.key",
    );
    let value_input = pick(
        value.map(|b| &b.input),
        &inputs.past_value_names,
        "past_key_values.%d.value",
    );
    let value_output = pick(
        value.map(|b| &b.output),
        &outputs.present_value_names,
        "present.%d.value",
    );
    let layer = |&layer: &u32| PagedLayer {
        layer,
        key_input: expand(&key_input, layer),
        key_output: expand(&key_output, layer),
        value_input: expand(&value_input, layer),
        value_output: expand(&value_output, layer),
    };
    group.layer_ids.iter().map(layer).collect()
}

/// A fixed group without its layers: names are templates.
struct FixedTemplate {
    operator: StateOperator,
    input: String,
    output: String,
    checkpoints: Option<Checkpoints>,
    key_heads: Option<u32>,
}

fn fixed_tensors(decoder: &Decoder, group: &StateGroup) -> Vec<FixedTensor> {
    let template = match group.kind {
        StateKind::PagedKv => return Vec::new(),
        StateKind::Fixed => pawl_template(group),
        StateKind::FixedConv | StateKind::FixedRecurrent => Some(genai_template(decoder, group)),
    };
    let Some(template) = template else {
        return Vec::new();
    };
    let layout = group.state_layout.unwrap_or(StateLayout::Rows);
    let tensor = |&layer: &u32| FixedTensor {
        layer,
        operator: template.operator,
        layout,
        input: expand(&template.input, layer),
        output: expand(&template.output, layer),
        checkpoints: template
            .checkpoints
            .as_ref()
            .map(|checkpoints| Checkpoints {
                output: expand(&checkpoints.output, layer),
                ..*checkpoints
            }),
        key_heads: template.key_heads,
    };
    group.layer_ids.iter().map(tensor).collect()
}

/// `None` for a group without operator or state, which validation refuses.
fn pawl_template(group: &StateGroup) -> Option<FixedTemplate> {
    let state = group.bindings.as_ref()?.state.as_ref()?;
    let count = group.checkpoint_count.unwrap_or(0);
    let checkpoints = state
        .checkpoints
        .as_ref()
        .filter(|_| count > 0)
        .map(|output| Checkpoints {
            output: output.clone(),
            count,
            form: group.checkpoint_form.unwrap_or(CheckpointForm::Update),
            alignment: group
                .checkpoint_alignment
                .unwrap_or(CheckpointAlignment::Left),
        });
    Some(FixedTemplate {
        operator: group.operator?,
        input: state.input.clone(),
        output: state.output.clone(),
        checkpoints,
        key_heads: group.key_head_count,
    })
}

fn genai_template(decoder: &Decoder, group: &StateGroup) -> FixedTemplate {
    let (inputs, outputs) = (&decoder.inputs, &decoder.outputs);
    let named =
        |name: &Option<String>, default: &str| name.clone().unwrap_or_else(|| default.to_owned());
    let (operator, input, output, update) = if group.kind == StateKind::FixedConv {
        (
            StateOperator::CausalConv,
            named(&inputs.past_conv_names, "past_key_values.%d.conv_state"),
            named(&outputs.present_conv_names, "present.%d.conv_state"),
            named(
                &outputs.state_update_conv_value_names,
                "state_update.%d.conv_value",
            ),
        )
    } else {
        (
            StateOperator::GatedDeltaNet,
            named(
                &inputs.past_recurrent_names,
                "past_key_values.%d.recurrent_state",
            ),
            named(
                &outputs.present_recurrent_names,
                "present.%d.recurrent_state",
            ),
            named(
                &outputs.state_update_recurrent_capsule_names,
                "state_update.%d.recurrent_capsule",
            ),
        )
    };
    let declared = group.state_update.as_ref();
    let checkpoints = declared
        .filter(|declared| declared.enabled.unwrap_or(true))
        .map(|declared| Checkpoints {
            output: update,
            count: declared.capacity,
            form: CheckpointForm::Update,
            alignment: CheckpointAlignment::Left,
        });
    FixedTemplate {
        operator,
        input,
        output,
        checkpoints,
        key_heads: declared.and_then(|declared| declared.key_head_count),
    }
}
