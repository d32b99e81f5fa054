//! The architectures Pawl knows.

use crate::config::{CONFIG, Config, Section, show};
use crate::description::{CheckpointInfo, ModelDescription};
use crate::error::DescribeError;

/// How one family of models is recognised and described.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Architecture {
    /// Name in descriptions.
    pub(crate) name: &'static str,
    /// Values of `model_type` in `config.json` that mean this family.
    pub(crate) model_types: &'static [&'static str],
    /// Describes a checkpoint of this family.
    pub(crate) describe: fn(&Source<'_>) -> Result<ModelDescription, DescribeError>,
}

/// A checkpoint on its way to a description.
#[derive(Clone, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) architecture: &'static str,
    pub(crate) model_type: &'a str,
    pub(crate) config: Config<'a>,
    pub(crate) checkpoint: &'a CheckpointInfo,
}

const ARCHITECTURES: &[Architecture] = &[
    crate::lfm2::ARCHITECTURE,
    crate::llama::ARCHITECTURE,
    crate::qwen3::ARCHITECTURE,
    crate::qwen3_5::ARCHITECTURE,
];

/// Every `model_type` that [`describe`](crate::describe) knows.
pub fn model_types() -> impl Iterator<Item = &'static str> {
    let all = ARCHITECTURES.iter();
    all.flat_map(|architecture| architecture.model_types.iter().copied())
}

pub(crate) fn describe(checkpoint: &CheckpointInfo) -> Result<ModelDescription, DescribeError> {
    const KEY: &str = "model_type";
    let root = Section::root(CONFIG, &checkpoint.config)?;
    let found = root.get(KEY).and_then(serde_json::Value::as_str);
    let entry = found.and_then(|model_type| {
        let mut all = ARCHITECTURES.iter();
        let entry = all.find(|entry| entry.model_types.contains(&model_type))?;
        Some((entry, model_type))
    });
    let Some((entry, model_type)) = entry else {
        return Err(DescribeError::UnknownArchitecture {
            found: show(root.get(KEY)),
            known: model_types().collect(),
        });
    };
    (entry.describe)(&Source {
        architecture: entry.name,
        model_type,
        config: Config {
            text: root,
            outer: None,
        },
        checkpoint,
    })
}
