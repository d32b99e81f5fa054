//! A model as its files describe it, without ONNX Runtime.

use super::info::ModelInfo;
use super::load::{configured_provider, provider};
use super::options::{LoadOptions, Provider};
use super::plan::MemoryPlan;
use super::source::Source;
use crate::error::LoadError;
use serde::Serialize;
use std::fmt;
use std::path::Path;

/// What the files of a model say.
///
/// ```no_run
/// let found = pawl::inspect("demo/tiny-python", &pawl::LoadOptions::new())?;
/// match &found.obstacle {
///     Some(obstacle) => println!("cannot be loaded here: {obstacle}"),
///     None => println!("{} bytes", found.memory.total()),
/// }
/// # Ok::<(), pawl::LoadError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Inspection {
    /// What the model is.
    pub info: ModelInfo,
    /// What memory it takes.
    pub memory: MemoryPlan,
    /// Why [`Model::load`](crate::Model::load) would refuse it here, as far as its files tell.
    pub obstacle: Option<String>,
}

/// Reads what the files of a built model say, and plans its memory.
///
/// Nothing is opened in ONNX Runtime, which need not even be there, and no weight is read: a model for another provider
/// and one that is too large for this machine can be looked at.
///
/// # Errors
/// What [`Model::load`](crate::Model::load) refuses before it opens anything, but for a provider that cannot be had and
/// too little memory, which are the [`obstacle`](Inspection::obstacle).
///
/// ```no_run
/// let found = pawl::inspect("models/tiny-python", &pawl::LoadOptions::new())?;
/// println!("{found}");
/// # Ok::<(), pawl::LoadError>(())
/// ```
pub fn inspect(folder: impl AsRef<Path>, options: &LoadOptions) -> Result<Inspection, LoadError> {
    let source = Source::read(folder.as_ref())?;
    let host = source.contract.decoder.host;
    let (limits, memory) = MemoryPlan::settle(
        &source.config,
        &source.contract,
        options,
        &source.graph_sizes,
    )?;
    let refused = provider(&source, options).err();
    let refused = refused.or_else(|| memory.require_fit().err().filter(|_| host));
    Ok(Inspection {
        info: ModelInfo::new(&source, intended(&source, options)?, &limits),
        obstacle: refused.map(|error| first_line(&error)),
        memory,
    })
}

/// Where the model is meant to run, whether or not it can here.
fn intended(source: &Source, options: &LoadOptions) -> Result<Provider, LoadError> {
    let asked = match options.provider {
        Some(provider) => provider,
        None => configured_provider(source)?,
    };
    let elsewhere = asked == Provider::Cpu && !source.contract.decoder.host;
    Ok(if elsewhere {
        Provider::Cuda { device_id: 0 }
    } else {
        asked
    })
}

/// The plan that follows in the message of a refusal is shown anyway.
fn first_line(error: &LoadError) -> String {
    let message = error.to_string();
    message.lines().next().unwrap_or_default().to_owned()
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.info, self.memory)?;
        match &self.obstacle {
            Some(obstacle) => write!(f, "\ncannot be loaded here: {obstacle}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "inspect_tests.rs"]
mod tests;
