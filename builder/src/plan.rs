//! A description and options, resolved once for graphs and configuration alike.

use pawl_models::{Attention, Layer, Mixer, ModelDescription, MtpHead};

use crate::blocks::Precision;
use crate::checkpoints::Checkpoints;
use crate::error::BuildError;
use crate::graph::ir;
use crate::mtp_weights::MtpWeights;
use crate::options::{BuildOptions, Dtype, Spelling};
use crate::target::{self, TargetTable};
use crate::wiring::MtpWiring;

/// Everything the emitters and the configuration ask about a build.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) description: &'a ModelDescription,
    pub(crate) target: &'static TargetTable,
    /// Element type of weights, activations and the key/value cache.
    pub(crate) dtype: ir::Dtype,
    /// `None` also where the model has no fixed state.
    pub(crate) checkpoints: Option<Checkpoints>,
    /// The model's first attention, which all others are like as far as the cache goes.
    pub(crate) attention: &'a Attention,
    /// The drafting head, where it is exported.
    pub(crate) head: Option<&'a MtpHead>,
    /// Longest sequence in tokens.
    pub(crate) sequence_limit: u64,
    pub(crate) spelling: Spelling,
    /// How the head is wired.
    pub(crate) wiring: MtpWiring,
    /// How the head's projections are stored.
    pub(crate) mtp_weights: MtpWeights,
}

impl<'a> Plan<'a> {
    /// Resolves options against a model.
    ///
    /// # Errors
    /// A model without attention or with key/value caches of several geometries, and a length beyond what the model's
    /// positions were made for.
    pub(crate) fn new(
        description: &'a ModelDescription,
        options: &BuildOptions,
    ) -> Result<Self, BuildError> {
        let target = target::table(options.target);
        Ok(Self {
            description,
            target,
            dtype: match options.effective_dtype() {
                Dtype::F32 => ir::Dtype::F32,
                Dtype::F16 => ir::Dtype::F16,
                Dtype::Bf16 => ir::Dtype::Bf16,
            },
            checkpoints: Checkpoints::from_option(options.checkpoints)
                .filter(|_| description.layers.iter().any(has_fixed_state)),
            attention: common_attention(description)?,
            head: description
                .mtp
                .as_ref()
                .filter(|_| has_place_for_head(options)),
            wiring: options.wiring,
            mtp_weights: options.effective_mtp_weights(),
            sequence_limit: sequence_limit(description, options, target)?,
            spelling: options.spelling,
        })
    }

    /// What the build does otherwise than a user may expect.
    pub(crate) fn warnings(&self, options: &BuildOptions) -> Vec<String> {
        let mut warnings = Vec::new();
        let (limit, context) = (self.sequence_limit, self.description.context_length);
        if options.max_sequence.is_none() && limit < context {
            warnings.push(format!(
                "sequences end at {limit} tokens, of {context} that the model allows, to keep its \
                 tables of positions small; --max-sequence sets another limit"
            ));
        }
        if self.description.mtp.is_some() && options.mtp && self.head.is_none() {
            warnings.push(
                "the multi-token-prediction head is left out: onnxruntime-genai 0.18 cannot run \
                 one with a paged cache"
                    .to_owned(),
            );
        }
        warnings
    }

    /// How the projections of the head's graph are stored.
    pub(crate) fn head_precision(&self) -> Precision {
        match self.mtp_weights {
            MtpWeights::Int8 => Precision::Int8(self.dtype),
            MtpWeights::Same => Precision::Whole(self.dtype),
        }
    }

    /// Whether any layer keeps a state of fixed size.
    pub(crate) fn has_fixed_state(&self) -> bool {
        self.description.layers.iter().any(has_fixed_state)
    }

    /// Whether the kept prefix of a row is committed by graphs. onnxruntime-genai commits by itself, and has no keys
    /// that could name them.
    pub(crate) fn has_commit_graphs(&self) -> bool {
        self.target.commit_graphs && self.checkpoints.is_some() && self.spelling == Spelling::Pawl
    }

    /// Whether any layer keeps a recurrent state.
    pub(crate) fn has_recurrent_state(&self) -> bool {
        let recurrent = |layer: &Layer| matches!(layer.mixer, Mixer::GatedDelta(_));
        self.description.layers.iter().any(recurrent)
    }

    /// The input that says whether anything is captured: only recurrent operators take one.
    pub(crate) fn capture_active(&self) -> Option<&'static str> {
        let read = self.checkpoints.is_some() && self.has_recurrent_state();
        self.target.capture_active.filter(|_| read)
    }
}

fn has_fixed_state(layer: &Layer) -> bool {
    match layer.mixer {
        Mixer::Attention(_) => false,
        Mixer::GatedDelta(_) | Mixer::ShortConv(_) => true,
    }
}

/// onnxruntime-genai 0.18 has no keys for a head with a paged cache.
fn has_place_for_head(options: &BuildOptions) -> bool {
    options.mtp && options.spelling == Spelling::Pawl
}

/// One block table serves all layers, so their caches must be alike.
fn common_attention(description: &ModelDescription) -> Result<&Attention, BuildError> {
    let mut attentions = description
        .layers
        .iter()
        .filter_map(|layer| match &layer.mixer {
            Mixer::Attention(attention) => Some(attention),
            Mixer::GatedDelta(_) | Mixer::ShortConv(_) => None,
        });
    let first = attentions.next().ok_or_else(|| BuildError::Unsupported {
        part: "a model without attention layers".to_owned(),
        reason: "the length of its sequences lies in the key/value cache".to_owned(),
    })?;
    let geometry = |attention: &Attention| (attention.kv_heads, attention.head_dim);
    match attentions.find(|other| geometry(other) != geometry(first)) {
        None => Ok(first),
        Some(other) => Err(BuildError::Unsupported {
            part: format!(
                "key/value caches of {:?} and {:?}",
                geometry(first),
                geometry(other)
            ),
            reason: "all layers must have as many key/value heads of the same width".to_owned(),
        }),
    }
}

fn sequence_limit(
    description: &ModelDescription,
    options: &BuildOptions,
    target: &TargetTable,
) -> Result<u64, BuildError> {
    let context = description.context_length;
    let Some(asked) = options.max_sequence.map(u64::from) else {
        return Ok(target
            .position_limit
            .map_or(context, |limit| context.min(limit)));
    };
    if asked > context {
        return Err(BuildError::Unsupported {
            part: format!("--max-sequence {asked}"),
            reason: format!("the model's positions end at {context}"),
        });
    }
    Ok(asked)
}
