//! Qwen3.5 text models: Gated DeltaNet and gated attention in any order, and an optional drafting head.
//!
//! Checkpoints come in two layouts: the language model alone (`model.layers.*`), or beside a vision tower
//! (`model.language_model.layers.*`, settings under `text_config`).

mod attention;
mod gated_delta;
mod mtp;

use crate::config::Config;
use crate::decoder::{Body, Dims, MLP_NAMES, assemble, epsilon, layer_types, mlp, output, width};
use crate::description::{Layer, Mixer, ModelDescription, Norm};
use crate::error::DescribeError;
use crate::refuse::{self, Rule};
use crate::registry::{Architecture, Source};
use crate::tensors::{Skip, Tensors};

use attention::GatedAttention;
use gated_delta::DeltaDims;

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    name: "qwen3_5",
    model_types: &[TEXT, WRAPPER],
    describe,
};

const TEXT: &str = "qwen3_5_text";
const WRAPPER: &str = "qwen3_5";

const RULES: &[Rule] = &[
    Rule::on("attn_output_gate"),
    Rule::silu("output_gate_type"),
    Rule::off("mtp_use_dedicated_embeddings"),
    Rule::off("sliding_window"),
    Rule::off("use_sliding_window"),
];

const ATTENTION: &str = "full_attention";
const LINEAR: &str = "linear_attention";

const BESIDE_VISION: &str = "model.language_model.";
const ALONE: &str = "model.";

const SKIPS: &[Skip] = &[
    Skip {
        prefix: "model.visual.",
        reason: "vision tower: only text is described",
    },
    Skip {
        prefix: "visual.",
        reason: "vision tower: only text is described",
    },
    Skip {
        prefix: "mtp.",
        reason: "drafting head that config.json does not declare (mtp_num_hidden_layers)",
    },
];

/// What every layer needs to know of its model.
struct Plan {
    dims: Dims,
    epsilon: f32,
    intermediate: u64,
    attention: GatedAttention,
    delta: Option<DeltaDims>,
}

fn describe(source: &Source<'_>) -> Result<ModelDescription, DescribeError> {
    let source = &language_model(source)?;
    let config = &source.config;
    refuse::check(config, &[refuse::COMMON, RULES])?;
    let dims = Dims::read(config)?;
    let kinds = kinds(config, &dims)?;
    let mut tensors = Tensors::new(&source.checkpoint.tensors);
    let prefix = prefix(config, &tensors);
    let plan = Plan::read(config, dims, &kinds, |layer, head_dim| {
        let name = format!("{prefix}layers.{layer}.self_attn.q_norm.weight");
        tensors.shape(&name) == Some(&[head_dim])
    })?;
    let has_head = mtp::declared(config)?;
    // Beside the text model of a multimodal checkpoint, `prefix` is its own; alone it is `model.`.
    tensors.own(prefix);
    if has_head {
        tensors.own("mtp.");
    }
    let body = Body {
        embedding: tensors.weight(
            format!("{prefix}embed_tokens.weight"),
            &[dims.vocab_size, dims.hidden_size],
        ),
        layers: kinds
            .iter()
            .enumerate()
            .map(|(i, kind)| plan.layer(&mut tensors, &format!("{prefix}layers.{i}."), kind))
            .collect(),
        final_norm: plan.norm(&mut tensors, format!("{prefix}norm.weight")),
        output: output(config, &mut tensors, &dims, false)?,
        mtp: has_head.then(|| mtp::describe(&plan, &mut tensors)),
    };
    assemble(source, &dims, body, tensors, SKIPS)
}

impl Plan {
    /// `head_fits` says whether the heads of a layer have that many elements in the checkpoint.
    fn read(
        config: &Config<'_>,
        dims: Dims,
        kinds: &[&str],
        head_fits: impl Fn(usize, u64) -> bool,
    ) -> Result<Self, DescribeError> {
        let first = kinds.iter().position(|kind| *kind == ATTENTION);
        let fits = |head_dim| head_fits(first.unwrap_or(0), head_dim);
        let delta = kinds.contains(&LINEAR).then(|| DeltaDims::read(config));
        Ok(Self {
            dims,
            epsilon: epsilon(config, "rms_norm_eps", 1e-6)?,
            intermediate: width(config, "intermediate_size")?,
            attention: GatedAttention::read(config, dims, fits)?,
            delta: delta.transpose()?,
        })
    }

    fn norm(&self, tensors: &mut Tensors<'_>, name: String) -> Norm {
        tensors.offset_norm(name, self.dims.hidden_size, self.epsilon)
    }

    fn layer(&self, tensors: &mut Tensors<'_>, at: &str, kind: &'static str) -> Layer {
        let mixer_norm = self.norm(tensors, format!("{at}input_layernorm.weight"));
        let mixer = match &self.delta {
            Some(delta) if kind == LINEAR => {
                let prefix = format!("{at}linear_attn.");
                let hidden = self.dims.hidden_size;
                Mixer::GatedDelta(delta.describe(tensors, &prefix, hidden, self.epsilon))
            }
            _ => {
                let prefix = format!("{at}self_attn.");
                Mixer::Attention(self.attention.describe(tensors, &prefix, self.epsilon))
            }
        };
        let mlp_norm = self.norm(tensors, format!("{at}post_attention_layernorm.weight"));
        Layer {
            kind,
            mixer_norm,
            mixer,
            mlp_norm,
            mlp: mlp(
                tensors,
                &format!("{at}mlp."),
                MLP_NAMES,
                self.dims.hidden_size,
                self.intermediate,
            ),
        }
    }
}

/// The same checkpoint with the settings of the language model alone.
fn language_model<'a>(source: &Source<'a>) -> Result<Source<'a>, DescribeError> {
    const KEY: &str = "text_config";
    if source.model_type == TEXT {
        return Ok(source.clone());
    }
    let outer = source.config.text.clone();
    let text = outer
        .section(KEY)?
        .ok_or_else(|| outer.error(KEY, "an object"))?;
    let model_type = text.text("model_type")?.unwrap_or(TEXT);
    if model_type != TEXT {
        return Err(text.error("model_type", format!("{TEXT:?}")));
    }
    Ok(Source {
        model_type,
        config: Config {
            text,
            outer: Some(outer),
        },
        ..source.clone()
    })
}

/// How names of the language model start: what the checkpoint holds decides.
fn prefix(config: &Config<'_>, tensors: &Tensors<'_>) -> &'static str {
    let holds = |prefix: &str| tensors.contains(&format!("{prefix}embed_tokens.weight"));
    let likely = if config.outer.is_some() {
        BESIDE_VISION
    } else {
        ALONE
    };
    let found = [likely, BESIDE_VISION, ALONE]
        .into_iter()
        .find(|prefix| holds(prefix));
    found.unwrap_or(likely)
}

/// `layer_types`, or attention in every `full_attention_interval`-th layer (every fourth if that is absent too).
fn kinds(config: &Config<'_>, dims: &Dims) -> Result<Vec<&'static str>, DescribeError> {
    if let Some(kinds) = layer_types(config, dims.layers, &[ATTENTION, LINEAR])? {
        return Ok(kinds);
    }
    let interval = config
        .text
        .integer("full_attention_interval", 1..=u64::MAX)?
        .unwrap_or(4);
    let kind = |layer: u64| {
        if layer.is_multiple_of(interval) {
            ATTENTION
        } else {
            LINEAR
        }
    };
    Ok((1..=dims.layers).map(kind).collect())
}
