//! What a model allows and supplies to its requests.

use crate::error::LoadError;
use crate::model::Model;
use crate::request::ModelLimits;
use crate::sample::SamplingParams;
use crate::text::{HfTokenizer, Tokenizer};
use genai_config_schema::Search;
use std::sync::Arc;

/// Reads the tokenizer, where the folder has one, and the model's defaults.
///
/// # Errors
/// A tokenizer that is there and cannot be used.
pub(super) fn of(model: &Model) -> Result<ModelLimits, LoadError> {
    let config = &model.config;
    Ok(ModelLimits {
        vocab_size: config.model.vocab_size,
        context_length: model.limits.sequence as u64,
        eos: config.model.eos_token_id.clone(),
        tokenizer: tokenizer(model)?,
        sampling: sampling(&config.search),
    })
}

fn tokenizer(model: &Model) -> Result<Option<Arc<dyn Tokenizer>>, LoadError> {
    let folder = match &model.config.model.tokenizer_dir {
        Some(folder) => model.folder.join(folder),
        None => model.folder.clone(),
    };
    let path = folder.join("tokenizer.json");
    if !path.exists() {
        return Ok(None);
    }
    let tokenizer = HfTokenizer::from_file(&path).map_err(|error| LoadError::Tokenizer {
        path,
        reason: error.to_string(),
    })?;
    Ok(Some(Arc::new(tokenizer)))
}

/// The file's `search` section, as sampling parameters. A file without `do_sample` decodes greedily.
pub(super) fn sampling(search: &Search) -> SamplingParams {
    if search.do_sample != Some(true) {
        return SamplingParams::greedy();
    }
    let mut params = SamplingParams::sampled(search.temperature.unwrap_or(1.0));
    if let Some(top_k) = search.top_k {
        params = params.top_k(top_k);
    }
    if let Some(top_p) = search.top_p.filter(|p| *p > 0.0) {
        params = params.top_p(top_p);
    }
    if let Some(min_p) = search.min_p {
        params = params.min_p(min_p);
    }
    params
}
