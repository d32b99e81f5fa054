//! `genai_config.json`: what the runtime must know to run the graphs.

mod decoder;
mod mtp;
mod search;
mod state_groups;

#[cfg(test)]
mod tests;

use genai_config_schema::{
    DynamicBatching, Engine, GenaiConfig, Model, ProviderOptions, SessionOptions,
    SharedInitializer, Speculative,
};
use pawl_models::ModelDescription;
use serde_json::Value;

use crate::error::BuildError;
use crate::graph::ir::SharedPlacement;
use crate::options::BuildOptions;
use crate::plan::Plan;

/// Requests of one step.
const MAX_BATCH_SIZE: u32 = 16;
/// Tokens of one step.
const MAX_SCHEDULED_TOKENS: u32 = 2048;

/// The configuration of the graphs that [`emit`](crate::decoder::emit) makes of the same description and options.
///
/// `shared` says where the shared initializers of every graph lie, and `generation_config` is the checkpoint's
/// `generation_config.json`, whose sampling settings become the defaults.
///
/// # Errors
/// What [`emit`](crate::decoder::emit) refuses, sizes the file cannot hold, and sampling settings that mean nothing.
pub(crate) fn genai_config(
    description: &ModelDescription,
    options: &BuildOptions,
    shared: &[SharedPlacement],
    generation_config: Option<&Value>,
) -> Result<GenaiConfig, BuildError> {
    let plan = Plan::new(description, options)?;
    let limit = number("context_length", plan.sequence_limit)?;
    let tokens = &description.tokens;
    Ok(GenaiConfig {
        model: Model {
            kind: description.model_type.clone(),
            vocab_size: number("vocab_size", description.vocab_size)?,
            context_length: limit,
            bos_token_id: tokens.bos,
            eos_token_id: tokens.eos.clone(),
            pad_token_id: tokens.pad,
            decoder: decoder::decoder(&plan, options.spelling, shared)?,
            mtp: plan
                .head
                .map(|head| mtp::mtp(&plan, head, shared))
                .transpose()?,
            ..Model::default()
        },
        search: search::search(limit, generation_config)?,
        speculative: Speculative {
            max_draft_tokens: max_draft_tokens(&plan),
            ..Speculative::default()
        },
        engine: Engine {
            dynamic_batching: Some(DynamicBatching {
                block_size: Some(plan.target.block_size),
                max_batch_size: Some(MAX_BATCH_SIZE),
                max_scheduled_tokens: Some(MAX_SCHEDULED_TOKENS),
                prefix_caching: Some(true),
                ..DynamicBatching::default()
            }),
            ..Engine::default()
        },
    })
}

/// What the checkpoints can take back; absent where the runtime's default stands.
fn max_draft_tokens(plan: &Plan<'_>) -> Option<u32> {
    plan.head?;
    let drafts = plan.checkpoints?.max_drafts();
    (drafts > 0).then_some(u32::from(drafts))
}

fn session_options(plan: &Plan<'_>) -> SessionOptions {
    SessionOptions {
        provider_options: plan
            .target
            .provider
            .map(|name| ProviderOptions {
                name: name.to_owned(),
                ..ProviderOptions::default()
            })
            .into_iter()
            .collect(),
        ..SessionOptions::default()
    }
}

/// The shared initializers of one graph.
fn shared_initializers(shared: &[SharedPlacement], file: &str) -> Vec<SharedInitializer> {
    shared
        .iter()
        .filter(|placement| placement.graph == file)
        .map(|placement| SharedInitializer {
            name: placement.name.clone(),
            data_file: placement.data_file.clone(),
            offset: placement.offset,
            length: placement.length,
            data_type: placement.dtype.onnx().unsigned_abs(),
            shape: placement.dims.clone(),
        })
        .collect()
}

/// A size as the file holds it.
pub(crate) fn number(key: &str, value: u64) -> Result<u32, BuildError> {
    u32::try_from(value).map_err(|_| BuildError::Unsupported {
        part: format!("{key} {value}"),
        reason: format!("genai_config.json holds at most {}", u32::MAX),
    })
}
