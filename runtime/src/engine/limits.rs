//! What a model allows and supplies to its requests.

use crate::error::LoadError;
use crate::grammar::Grammars;
use crate::model::Model;
use crate::request::ModelLimits;
use crate::sample::SamplingParams;
use crate::text::{HfTokenizer, Tokenizer};
use genai_config_schema::{Search, confined};
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
        grammars: Grammars::default(),
    })
}

fn tokenizer(model: &Model) -> Result<Option<Arc<dyn Tokenizer>>, LoadError> {
    let folder = match &model.config.model.tokenizer_dir {
        Some(name) if !name.is_empty() => {
            confined(&model.folder, name).map_err(|source| LoadError::File {
                path: model.folder.join(name),
                source,
            })?
        }
        _ => model.folder.clone(),
    };
    let path = folder.join("tokenizer.json");
    // A link that leads nowhere is a file that cannot be read, not one that is absent.
    if std::fs::symlink_metadata(&path).is_err() {
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

/// Settings of the file's `search` section that change tokens and that the sampler does not know.
pub(super) fn unapplied(search: &Search) -> Vec<String> {
    let counts = [
        ("min_length", search.min_length.filter(|n| *n > 0)),
        ("num_beams", search.num_beams.filter(|n| *n > 1)),
        (
            "no_repeat_ngram_size",
            search.no_repeat_ngram_size.filter(|n| *n > 0),
        ),
    ];
    let penalty = search.repetition_penalty.filter(|p| *p != 1.0);
    let counts = counts.map(|(key, value)| (key, value.map(|value| value.to_string())));
    let penalty = [("repetition_penalty", penalty.map(|value| value.to_string()))];
    let set = counts.into_iter().chain(penalty);
    set.filter_map(|(key, value)| Some(format!("search.{key} is {} and is not applied", value?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_are_not_applied_are_named() {
        let mut search = Search::default();
        assert!(unapplied(&search).is_empty());
        search.repetition_penalty = Some(1.1);
        search.num_beams = Some(1);
        assert_eq!(
            unapplied(&search),
            ["search.repetition_penalty is 1.1 and is not applied"]
        );
    }
}
