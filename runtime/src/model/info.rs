//! What a loaded model is, for people and programs.

use super::options::Provider;
use super::source::Source;
use genai_config_schema::{CheckpointForm, StateOperator};
use std::fmt;

/// What a model is.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Groups of state, as the manifest resolves them.
    pub state_groups: Vec<StateGroupInfo>,
    /// Where it runs.
    pub provider: Provider,
    /// Whether a drafting head is open.
    pub has_head: bool,
}

/// One group of state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateGroupInfo {
    /// `key/value cache`, `causal convolution`, `Gated DeltaNet` or `token history`.
    pub kind: &'static str,
    /// Layers that keep it.
    pub layers: Vec<u32>,
    /// Elements that one request keeps per layer; for a key/value cache, per token.
    pub elements: usize,
    /// Checkpoint slots, 0 for none.
    pub checkpoints: usize,
    /// What a checkpoint slot holds, if there are any: `state` or `update`.
    pub checkpoint_form: Option<&'static str>,
}

impl ModelInfo {
    pub(crate) fn new(source: &Source, provider: Provider) -> Self {
        let model = &source.config.model;
        Self {
            model_type: model.kind.clone(),
            vocab_size: model.vocab_size,
            context_length: model.context_length,
            layers: model.decoder.num_hidden_layers,
            state_groups: groups(source),
            provider,
            has_head: source.head.is_some(),
        }
    }
}

fn groups(source: &Source) -> Vec<StateGroupInfo> {
    let state = &source.contract.decoder.state;
    let paged = state.paged.iter().map(|paged| StateGroupInfo {
        kind: "key/value cache",
        layers: paged.layers.iter().map(|layer| layer.layer).collect(),
        elements: paged
            .kv_heads
            .saturating_mul(paged.head_dim)
            .saturating_mul(2),
        checkpoints: 0,
        checkpoint_form: None,
    });
    let mut groups: Vec<StateGroupInfo> = paged.collect();
    for fixed in &state.fixed {
        let kind = operator_name(fixed.operator);
        if let Some(group) = groups.iter_mut().find(|group| group.kind == kind) {
            group.layers.push(fixed.layer);
            continue;
        }
        let checkpoints = fixed.checkpoints.as_ref();
        groups.push(StateGroupInfo {
            kind,
            layers: vec![fixed.layer],
            elements: fixed.row_shape.iter().fold(1, |n, d| n.saturating_mul(*d)),
            checkpoints: checkpoints.map_or(0, |checkpoints| checkpoints.count),
            checkpoint_form: checkpoints.map(|checkpoints| match checkpoints.form {
                CheckpointForm::State => "state",
                CheckpointForm::Update => "update",
            }),
        });
    }
    groups
}

fn operator_name(operator: StateOperator) -> &'static str {
    match operator {
        StateOperator::CausalConv => "causal convolution",
        StateOperator::GatedDeltaNet => "Gated DeltaNet",
        StateOperator::TokenHistory => "token history",
    }
}

impl fmt::Display for ModelInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} layers, vocabulary {}, context {}, {} on {}",
            self.model_type,
            self.layers,
            self.vocab_size,
            self.context_length,
            if self.has_head {
                "with a drafting head"
            } else {
                "no drafting head"
            },
            self.provider
        )?;
        self.state_groups
            .iter()
            .try_for_each(|group| write!(f, "\n  {group}"))
    }
}

impl fmt::Display for StateGroupInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of layers {:?}, {} elements",
            self.kind, self.layers, self.elements
        )?;
        match self.checkpoint_form {
            Some(form) => write!(f, ", checkpoints {form}:{}", self.checkpoints),
            None => Ok(()),
        }
    }
}
