//! The graphs that commit kept prefixes, opened where the host cannot do it.

use super::load::session_error;
use super::options::Provider;
use super::source::{CONFIG_FILE, Source};
use crate::device::Device;
use crate::error::LoadError;
use crate::exec::{CommitGraphs, Loaded, Session, SessionSettings};
use genai_config_schema::GraphOptimizationLevel;
use std::num::NonZeroUsize;
use std::path::Path;

/// Opens the commit graphs of a model for a device that the host cannot touch. `None` where the host commits by itself,
/// and where nothing is captured.
///
/// # Errors
/// States with checkpoints and no graph to commit them, and graphs that ONNX Runtime refuses.
pub(super) fn commit_graphs(
    loaded: &Loaded,
    source: &Source,
    provider: Provider,
    device: &dyn Device,
) -> Result<Option<CommitGraphs>, LoadError> {
    let states = &source.contract.decoder.state.fixed;
    let captures = states.iter().any(|state| state.checkpoints.is_some());
    if device.host_visible() || !captures {
        return Ok(None);
    }
    let mut graphs = CommitGraphs::new(states.len());
    for contract in &source.contract.commits {
        let path = source.folder.join(&contract.file);
        let refused = |message: &str| session_error(&path, provider, message);
        let session = Session::open(loaded, &path, settings(provider), None)
            .map_err(|error| refused(error.message()))?;
        graphs
            .add(session, contract.task, &contract.tensors)
            .map_err(|error| refused(error.message()))?;
    }
    let missing = states.iter().enumerate();
    let mut missing =
        missing.filter(|(tensor, state)| state.checkpoints.is_some() && !graphs.has(*tensor));
    match missing.next() {
        None => Ok(Some(graphs)),
        Some((_, state)) => Err(no_graph(&source.folder, &state.input, state.layer, device)),
    }
}

fn no_graph(folder: &Path, input: &str, layer: u32, device: &dyn Device) -> LoadError {
    LoadError::Unsupported {
        path: folder.join(CONFIG_FILE),
        reason: format!(
            "the state `{input}` of layer {layer} has checkpoints, but its group names no commit_filename: the host cannot \
             touch the memory of {}, so a graph must commit what is kept; build the model again with `--target cuda \
             --spelling pawl`, or without checkpoints",
            device.name()
        ),
    }
}

/// The graphs are a few operators over little data.
pub(super) fn settings(provider: Provider) -> SessionSettings {
    SessionSettings {
        provider,
        threads: Some(NonZeroUsize::MIN),
        operators: None,
        optimize: GraphOptimizationLevel::All,
        arena: true,
        entries: Vec::new(),
    }
}

#[cfg(test)]
#[path = "commit_tests.rs"]
mod tests;
