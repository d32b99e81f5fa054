//! What a model is, for people and programs.

use super::graph_io::GraphIo;
use super::options::Provider;
use super::plan::Limits;
use super::source::Source;
use super::spec::FixedSpec;
use super::tensor_spec::DataType;
use crate::speculate::{EffectiveSpeculation, Speculation};
use genai_config_schema::{
    CheckpointAlignment, CheckpointForm, FixedTensor, StateLayout, StateOperator, counted,
};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// What a model is.
///
/// ```no_run
/// let found = pawl::inspect("demo/tiny-python", &pawl::LoadOptions::new())?;
/// let info = &found.info;
/// println!("{}: {} layers, vocabulary {}", info.model_type, info.layers, info.vocab_size);
/// # Ok::<(), pawl::LoadError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ModelInfo {
    /// `model.type` of the configuration. Informational: declared state decides what runs.
    pub model_type: String,
    /// Tokens of the vocabulary, columns of the logits.
    pub vocab_size: u32,
    /// Longest sequence that the model was made for, tokens.
    pub context_length: u32,
    /// Layers of the decoder.
    pub layers: u32,
    /// What each layer is, as the configuration calls it; empty where it does not say.
    pub layer_types: Vec<String>,
    /// Elements of a hidden row.
    pub hidden_size: u32,
    /// Query heads of the layers that attend.
    pub attention_heads: u32,
    /// Key/value heads of the layers that attend.
    pub key_value_heads: u32,
    /// Elements of a head of the layers that attend.
    pub head_size: u32,
    /// Element type of the weights, such as `float32`: that of most of their bytes.
    pub element_type: String,
    /// Groups of state, as the manifest resolves them.
    pub state_groups: Vec<StateGroupInfo>,
    /// Where it runs, or would run.
    #[serde(serialize_with = "as_text")]
    pub provider: Provider,
    /// Whether there is a drafting head that is enabled.
    pub has_head: bool,
    /// The drafting head, where there is one that is enabled.
    pub head: Option<HeadInfo>,
    /// Sizes that the engine keeps to.
    pub limits: LimitsInfo,
    /// What the configuration says about drafts.
    pub speculative: SpeculativeInfo,
}

/// One group of state.
///
/// ```no_run
/// let found = pawl::inspect("demo/tiny-python", &pawl::LoadOptions::new())?;
/// for group in &found.info.state_groups {
///     println!("{}: {} layers, rows of {:?}", group.kind, group.layers.len(), group.row_shape);
/// }
/// # Ok::<(), pawl::LoadError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StateGroupInfo {
    /// `key/value cache`, `causal convolution`, `Gated DeltaNet` or `token history`.
    pub kind: &'static str,
    /// Layers that keep it.
    pub layers: Vec<u32>,
    /// Elements that one request keeps per layer; for a key/value cache, per token.
    pub elements: usize,
    /// Extents of what one request keeps per layer; for a key/value cache, of the keys of one token.
    pub row_shape: Vec<usize>,
    /// Element type, such as `float32`.
    pub element_type: String,
    /// How it meets the pool: `paged`, `bank` or `rows`.
    pub layout: &'static str,
    /// Checkpoint slots, 0 for none.
    pub checkpoints: usize,
    /// What a checkpoint slot holds, if there are any: `state` or `update`.
    pub checkpoint_form: Option<&'static str>,
    /// Where a token lies among the slots, if there are any: `left` or `right`.
    pub checkpoint_alignment: Option<&'static str>,
    /// The graph that commits a kept prefix where the host cannot, as the configuration names the file.
    pub commit_graph: Option<String>,
}

/// A drafting head.
///
/// ```no_run
/// let found = pawl::inspect("demo/tiny-python", &pawl::LoadOptions::new())?;
/// if let Some(head) = &found.info.head {
///     println!("{} with {} layers", head.file, head.layers);
/// }
/// # Ok::<(), pawl::LoadError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HeadInfo {
    /// Its graph, as the configuration names the file.
    pub file: String,
    /// Layers, all of which attend.
    pub layers: u32,
    /// Key/value heads.
    pub key_value_heads: u32,
    /// Elements of a head.
    pub head_size: u32,
}

/// Sizes that the engine keeps to: those of the load options, the configuration or the defaults.
///
/// ```no_run
/// let found = pawl::inspect("demo/tiny-python", &pawl::LoadOptions::new())?;
/// let limits = &found.info.limits;
/// println!("{} requests of up to {} tokens", limits.requests, limits.sequence);
/// # Ok::<(), pawl::LoadError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LimitsInfo {
    /// Requests that run at once.
    pub requests: usize,
    /// Most tokens of one step.
    pub scheduled_tokens: usize,
    /// Longest sequence, tokens.
    pub sequence: usize,
    /// Key/value blocks of each layer.
    pub kv_blocks: usize,
    /// Tokens of a key/value block.
    pub block_size: usize,
}

/// What a configuration says about drafts.
///
/// ```no_run
/// let found = pawl::inspect("demo/tiny-python", &pawl::LoadOptions::new())?;
/// let drafts = found.info.speculative.max_draft_tokens;
/// println!("{}", drafts.map_or("the default".to_owned(), |drafts| drafts.to_string()));
/// # Ok::<(), pawl::LoadError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SpeculativeInfo {
    /// `speculative.max_draft_tokens`.
    pub max_draft_tokens: Option<u32>,
    /// `speculative.ngram_size`: tokens that an n-gram lookup matches.
    pub ngram_size: Option<u32>,
    /// Tokens that a row captures at most, one more than its drafts: 0 for a model without checkpoints, `None` for one that
    /// has no fixed state to capture.
    pub captures: Option<usize>,
    /// Whether rows can be captured in a step that also reads prompts.
    pub captures_in_mixed_steps: bool,
    /// What an engine runs that is asked for nothing else, as [`Engine::speculation`](crate::Engine::speculation) tells it.
    #[serde(serialize_with = "as_text")]
    pub by_default: EffectiveSpeculation,
    /// What an engine runs that is asked for [`Speculation::Auto`](crate::Speculation::Auto) alone: without a head, only lookups.
    #[serde(serialize_with = "as_text")]
    pub with_auto: EffectiveSpeculation,
}

fn as_text<S: Serializer>(value: &impl fmt::Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

impl ModelInfo {
    pub(crate) fn new(source: &Source, provider: Provider, limits: &Limits) -> Self {
        let model = &source.config.model;
        let decoder = &model.decoder;
        let head = source.head.as_ref().zip(model.mtp.as_ref());
        Self {
            model_type: model.kind.clone(),
            vocab_size: model.vocab_size,
            context_length: model.context_length,
            layers: decoder.num_hidden_layers,
            layer_types: decoder.layer_types.clone(),
            hidden_size: decoder.hidden_size,
            attention_heads: decoder.num_attention_heads,
            key_value_heads: decoder.num_key_value_heads,
            head_size: decoder.head_size,
            element_type: weight_type(&source.decoder.io).to_string(),
            state_groups: groups(source),
            provider,
            has_head: source.head.is_some(),
            head: head.map(|(graph, mtp)| HeadInfo {
                file: graph.name.clone(),
                layers: mtp.num_hidden_layers.unwrap_or(1),
                key_value_heads: mtp.num_key_value_heads,
                head_size: mtp.head_size,
            }),
            limits: LimitsInfo {
                requests: limits.slots,
                scheduled_tokens: limits.scheduled_tokens,
                sequence: limits.sequence,
                kv_blocks: limits.kv_blocks,
                block_size: limits.block_size,
            },
            speculative: speculative(source, provider, limits),
        }
    }
}

fn speculative(source: &Source, provider: Provider, limits: &Limits) -> SpeculativeInfo {
    let state = &source.contract.decoder.state;
    let has = (source.head.is_some(), provider == Provider::Cpu);
    let offer = limits.offer(&source.config, state, has);
    let capacity = offer.capture_capacity;
    SpeculativeInfo {
        max_draft_tokens: source.config.speculative.max_draft_tokens,
        ngram_size: source.config.speculative.ngram_size,
        captures: Some(capacity).filter(|capacity| *capacity != usize::MAX),
        captures_in_mixed_steps: source.manifest.captures_in_mixed_steps,
        by_default: EffectiveSpeculation::within(None, offer),
        with_auto: EffectiveSpeculation::within(Some(Speculation::Auto), offer),
    }
}

fn weight_type(graph: &GraphIo) -> DataType {
    let mut bytes: BTreeMap<DataType, u64> = BTreeMap::new();
    for weight in &graph.initializers {
        let sum = bytes.entry(weight.data_type).or_default();
        *sum = sum.saturating_add(weight.bytes().unwrap_or(0));
    }
    let most = bytes.into_iter().max_by_key(|(_, bytes)| *bytes);
    most.map_or(DataType::F32, |(kind, _)| kind)
}

fn groups(source: &Source) -> Vec<StateGroupInfo> {
    let graph = &source.contract.decoder;
    let paged = graph.state.paged.iter().map(|paged| StateGroupInfo {
        kind: "key/value cache",
        layers: paged.layers.iter().map(|layer| layer.layer).collect(),
        elements: paged
            .kv_heads
            .saturating_mul(paged.head_dim)
            .saturating_mul(2),
        row_shape: vec![paged.kv_heads, paged.head_dim],
        element_type: graph.types.cache.unwrap_or(DataType::F32).to_string(),
        layout: "paged",
        checkpoints: 0,
        checkpoint_form: None,
        checkpoint_alignment: None,
        commit_graph: None,
    });
    let mut groups: Vec<StateGroupInfo> = paged.collect();
    let tensors = graph.state.fixed.iter().zip(&graph.types.fixed);
    for ((spec, element), tensor) in tensors.zip(&source.manifest.fixed) {
        let kind = operator_name(spec.operator);
        let known = groups
            .iter_mut()
            .find(|group| group.kind == kind && group.row_shape == spec.row_shape);
        match known {
            Some(group) => group.layers.push(spec.layer),
            None => groups.push(fixed_group(spec, *element, tensor)),
        }
    }
    groups
}

fn fixed_group(spec: &FixedSpec, element: DataType, tensor: &FixedTensor) -> StateGroupInfo {
    let checkpoints = spec.checkpoints.as_ref();
    StateGroupInfo {
        kind: operator_name(spec.operator),
        layers: vec![spec.layer],
        elements: spec.row_shape.iter().fold(1, |n, d| n.saturating_mul(*d)),
        row_shape: spec.row_shape.clone(),
        element_type: element.to_string(),
        layout: match tensor.layout {
            StateLayout::Bank => "bank",
            StateLayout::Rows => "rows",
        },
        checkpoints: checkpoints.map_or(0, |checkpoints| checkpoints.count),
        checkpoint_form: checkpoints.map(|checkpoints| match checkpoints.form {
            CheckpointForm::State => "state",
            CheckpointForm::Update => "update",
        }),
        checkpoint_alignment: checkpoints.map(|checkpoints| match checkpoints.alignment {
            CheckpointAlignment::Left => "left",
            CheckpointAlignment::Right => "right",
        }),
        commit_graph: tensor.commit_filename.clone(),
    }
}

pub(super) fn operator_name(operator: StateOperator) -> &'static str {
    match operator {
        StateOperator::CausalConv => "causal convolution",
        StateOperator::GatedDeltaNet => "Gated DeltaNet",
        StateOperator::TokenHistory => "token history",
    }
}

impl fmt::Display for ModelInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            model_type, layers, ..
        } = self;
        write!(f, "{model_type}: {}", counted(layers, "layer"))?;
        for (index, (kind, count)) in tally(&self.layer_types).into_iter().enumerate() {
            let before = if index == 0 { " (" } else { ", " };
            write!(f, "{before}{count} {kind}")?;
        }
        f.write_str(if self.layer_types.is_empty() { "" } else { ")" })?;
        writeln!(
            f,
            ", hidden size {}, {} query and {} key/value heads of {}, {}, on {}",
            self.hidden_size,
            self.attention_heads,
            self.key_value_heads,
            self.head_size,
            self.element_type,
            self.provider,
        )?;
        write!(
            f,
            "  vocabulary {}, context {}",
            self.vocab_size, self.context_length
        )?;
        for group in &self.state_groups {
            write!(f, "\n  {group}")?;
        }
        match &self.head {
            Some(head) => write!(f, "\n  {head}")?,
            None => f.write_str("\n  no drafting head")?,
        }
        write!(f, "\n  {}\n  {}", self.limits, self.speculative)
    }
}

/// Each word once, in the order of its first place, with how often it stands there.
fn tally(words: &[String]) -> Vec<(&str, usize)> {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for word in words {
        match counts.iter_mut().find(|(known, _)| known == word) {
            Some((_, count)) => *count += 1,
            None => counts.push((word, 1)),
        }
    }
    counts
}

impl fmt::Display for StateGroupInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of layers {:?}: {} {:?}, {} elements{}, {}",
            self.kind,
            self.layers,
            self.element_type,
            self.row_shape,
            self.elements,
            if self.layout == "paged" {
                " per token"
            } else {
                ""
            },
            self.layout,
        )?;
        if let (Some(form), Some(alignment)) = (self.checkpoint_form, self.checkpoint_alignment) {
            write!(f, ", checkpoints {form}:{} {alignment}", self.checkpoints)?;
        }
        match &self.commit_graph {
            Some(file) => write!(f, ", committed by `{file}`"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for HeadInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "drafting head `{}`: {}, {} of {}",
            self.file,
            counted(self.layers, "layer"),
            counted(self.key_value_heads, "key/value head"),
            self.head_size
        )
    }
}

impl fmt::Display for LimitsInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "engine: {}, {} per step, sequences of {}, {} of {}",
            counted(self.requests, "request"),
            counted(self.scheduled_tokens, "token"),
            counted(self.sequence, "token"),
            counted(self.kv_blocks, "block"),
            counted(self.block_size, "token"),
        )
    }
}

impl fmt::Display for SpeculativeInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |n: Option<u32>| n.map_or("by default".to_owned(), |n| n.to_string());
        write!(
            f,
            "speculative: max_draft_tokens {}, ngram_size {}; captures {}; runs {} unless told otherwise",
            number(self.max_draft_tokens),
            number(self.ngram_size),
            match (self.captures, self.captures_in_mixed_steps) {
                (Some(0), _) => "nothing",
                (_, true) => "in every step",
                (_, false) => "only in steps without prompts",
            },
            self.by_default,
        )?;
        match (&self.with_auto.reason, self.with_auto.mode) {
            (Some(_), Speculation::Auto) => write!(f, "; {}", self.with_auto),
            _ => Ok(()),
        }
    }
}
