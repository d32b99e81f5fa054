//! The state a graph declares, as the runtime uses it: the same for both spellings.

use crate::template::expand;
use crate::{
    Binding, CheckpointAlignment, CheckpointForm, ConfigCode, ConfigError, ConfigErrors, Decoder,
    ElementType, GenaiConfig, StateDecay, StateGroup, StateKind, StateLayout, StateOperator,
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
    /// Element type of its tensors, where the file says so.
    pub element_type: Option<ElementType>,
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
    /// What a transition of Gated DeltaNet decays by one factor.
    pub decay: StateDecay,
    /// Extents of one row, one per [axis of its operator](StateOperator::row_axes); empty where the
    /// file does not say.
    pub row_shape: Vec<u64>,
    /// Element type, where the file says so.
    pub element_type: Option<ElementType>,
    /// What fills the history of a request that has run no token; 0 for other states.
    pub fresh_token_id: u32,
    /// The graph that makes the state of a kept prefix on the device, where there is one.
    pub commit_filename: Option<String>,
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
fn resolve(decoder: &Decoder) -> Manifest {
    let groups = || decoder.state_groups.iter();
    let layers: Vec<_> = groups()
        .flat_map(|group| paged_layers(decoder, group))
        .collect();
    Manifest {
        spelling: Spelling::of(decoder),
        paged: (!layers.is_empty()).then_some(PagedGroup {
            layers,
            element_type: groups()
                .find(|group| group.kind == StateKind::PagedKv)
                .and_then(|group| group.element_type),
        }),
        fixed: groups()
            .flat_map(|group| fixed_tensors(decoder, group))
            .collect(),
        captures_in_mixed_steps: decoder.captures_in_mixed_steps.unwrap_or(false),
    }
}

/// The tensors of a paged group; none for another group or one that does not name them.
pub(crate) fn paged_layers(decoder: &Decoder, group: &StateGroup) -> Vec<PagedLayer> {
    let named = match (group.kind, Spelling::of(decoder)) {
        (StateKind::PagedKv, Spelling::Pawl) => pawl_paged(group),
        (StateKind::PagedKv, Spelling::Genai018) => Some(genai_paged(decoder)),
        _ => None,
    };
    let Some((key, value)) = named else {
        return Vec::new();
    };
    let layer = |&layer: &u32| PagedLayer {
        layer,
        key_input: expand(&key.input, layer),
        key_output: expand(&key.output, layer),
        value_input: expand(&value.input, layer),
        value_output: expand(&value.output, layer),
    };
    group.layer_ids.iter().map(layer).collect()
}

fn pawl_paged(group: &StateGroup) -> Option<(Binding, Binding)> {
    let bindings = group.bindings.as_ref()?;
    bindings.key.clone().zip(bindings.value.clone())
}

/// `named`, or what onnxruntime-genai takes where the key is absent.
fn or_default(named: &Option<String>, default: &str) -> String {
    named.clone().unwrap_or_else(|| default.to_owned())
}

fn genai_paged(decoder: &Decoder) -> (Binding, Binding) {
    let (inputs, outputs) = (&decoder.inputs, &decoder.outputs);
    let binding = |input, output| Binding {
        input,
        output,
        checkpoints: None,
    };
    let key = binding(
        or_default(&inputs.past_key_names, "past_key_values.%d.key"),
        or_default(&outputs.present_key_names, "present.%d.key"),
    );
    let value = binding(
        or_default(&inputs.past_value_names, "past_key_values.%d.value"),
        or_default(&outputs.present_value_names, "present.%d.value"),
    );
    (key, value)
}

/// A fixed group before its layer ids are filled in: names are templates.
struct FixedTemplate {
    operator: StateOperator,
    input: String,
    output: String,
    checkpoints: Option<Checkpoints>,
    key_heads: Option<u32>,
}

/// The tensors of a fixed group; none for another group or one that does not name them.
pub(crate) fn fixed_tensors(decoder: &Decoder, group: &StateGroup) -> Vec<FixedTensor> {
    let template = match Spelling::of(decoder) {
        Spelling::Pawl => pawl_fixed(group),
        Spelling::Genai018 => genai_fixed(decoder, group),
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
        decay: group.decay.unwrap_or_default(),
        row_shape: group.row_shape.clone(),
        element_type: group.element_type,
        fresh_token_id: group.fresh_token_id.unwrap_or(0),
        commit_filename: group.commit_filename.clone(),
    };
    group.layer_ids.iter().map(tensor).collect()
}

fn pawl_fixed(group: &StateGroup) -> Option<FixedTemplate> {
    if group.kind != StateKind::Fixed {
        return None;
    }
    let state = group.bindings.as_ref()?.state.as_ref()?;
    let count = group.checkpoint_count.filter(|&count| count > 0);
    let checkpoints = state
        .checkpoints
        .as_ref()
        .zip(count)
        .map(|(output, count)| Checkpoints {
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

fn genai_fixed(decoder: &Decoder, group: &StateGroup) -> Option<FixedTemplate> {
    let (inputs, outputs) = (&decoder.inputs, &decoder.outputs);
    let (operator, input, output, update) = match group.kind {
        StateKind::FixedConv => (
            StateOperator::CausalConv,
            or_default(&inputs.past_conv_names, "past_key_values.%d.conv_state"),
            or_default(&outputs.present_conv_names, "present.%d.conv_state"),
            or_default(
                &outputs.state_update_conv_value_names,
                "state_update.%d.conv_value",
            ),
        ),
        StateKind::FixedRecurrent => (
            StateOperator::GatedDeltaNet,
            or_default(
                &inputs.past_recurrent_names,
                "past_key_values.%d.recurrent_state",
            ),
            or_default(
                &outputs.present_recurrent_names,
                "present.%d.recurrent_state",
            ),
            or_default(
                &outputs.state_update_recurrent_capsule_names,
                "state_update.%d.recurrent_capsule",
            ),
        ),
        StateKind::PagedKv | StateKind::Fixed => return None,
    };
    let declared = group.state_update.as_ref();
    let enabled = declared.filter(|declared| declared.enabled.unwrap_or(true));
    let checkpoints = enabled.map(|declared| Checkpoints {
        output: update,
        count: declared.capacity,
        form: CheckpointForm::Update,
        alignment: CheckpointAlignment::Left,
    });
    Some(FixedTemplate {
        operator,
        input,
        output,
        checkpoints,
        key_heads: declared.and_then(|declared| declared.key_head_count),
    })
}
