//! Whether the graphs declare what `genai_config.json` says, checked before any session is opened.
//!
//! `M1` to `M12` are the disagreements that onnxruntime-genai refuses too, with the same meaning; the other codes are
//! Pawl's own. All mismatches of a model are found at once.

mod commit;
mod fixed;
mod paged;
mod pattern;
mod report;
mod step;
#[cfg(test)]
mod tests;
mod weights;
mod wiring;
mod wiring_layout;
#[cfg(test)]
mod wiring_tests;

pub use report::{ContractCode, ContractErrors, ContractMismatch};

use super::graph_io::GraphIo;
use super::spec::StateSpec;
use super::tensor_spec::DataType;
use crate::exec::{CommitTask, SharedTensor, Signature};
use genai_config_schema::{GenaiConfig, Manifest, Mtp, StateLayout};
use report::Findings;
use std::path::{Path, PathBuf};

/// A graph file as read, by the name that the configuration gives it.
#[derive(Clone, Debug)]
pub(crate) struct GraphFile {
    pub(crate) name: String,
    pub(crate) io: GraphIo,
}

/// What one graph takes, gives and keeps, as agreed by graph and configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct GraphContract {
    pub(crate) signature: Signature,
    pub(crate) state: StateSpec,
    /// Element types of the state; on the host they are all float32.
    pub(crate) types: StateTypes,
    /// Whether the graph is for the host: its state is bound in banks, and it computes in float32.
    pub(crate) host: bool,
}

/// Element types of a graph's state.
#[derive(Clone, Debug, Default)]
pub(crate) struct StateTypes {
    /// Of the key/value cache.
    pub(crate) cache: Option<DataType>,
    /// Of each fixed tensor, in their order.
    pub(crate) fixed: Vec<DataType>,
}

/// A model whose graphs and configuration agree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contract {
    pub(crate) decoder: GraphContract,
    pub(crate) head: Option<GraphContract>,
    /// Graphs that commit kept prefixes, where the model has any.
    pub(crate) commits: Vec<CommitContract>,
    /// Weights that several graphs use.
    pub(crate) shared: Vec<SharedTensor>,
    /// Every data file of the graphs, with its size in bytes.
    pub(crate) data_files: Vec<(PathBuf, u64)>,
}

/// A commit graph and what it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommitContract {
    pub(crate) file: String,
    pub(crate) task: CommitTask,
    /// Fixed tensors of the decoder, by their place.
    pub(crate) tensors: Vec<usize>,
}

/// What is checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    /// The model folder.
    pub(crate) folder: &'a Path,
    pub(crate) config: &'a GenaiConfig,
    pub(crate) manifest: &'a Manifest,
    pub(crate) decoder: &'a GraphFile,
    /// The drafting head, where the model has one that is enabled.
    pub(crate) head: Option<(&'a Mtp, &'a GraphFile)>,
    /// Every file that a state group names to commit its states.
    pub(crate) commits: &'a [GraphFile],
}

/// Tokens of a key/value block where neither the graph nor the configuration says.
const DEFAULT_BLOCK_SIZE: u32 = 32;

/// Checks everything.
///
/// # Errors
/// Every mismatch, in the order decoder, head, commit graphs, weights.
pub(crate) fn check(subject: &Subject<'_>) -> Result<Contract, ContractErrors> {
    let mut findings = Findings::default();
    let decoder = check_decoder(subject, &mut findings);
    let head = subject
        .head
        .map(|(mtp, graph)| check_head(subject, mtp, graph, &mut findings));
    let (tensors, states) = (&subject.manifest.fixed, &decoder.state.fixed);
    let commits = commit::check(subject.commits, tensors, states, &mut findings);
    let (shared, data_files) = weights::check(subject, &mut findings);
    findings.result(subject.folder)?;
    Ok(Contract {
        decoder,
        head,
        commits,
        shared,
        data_files,
    })
}

fn check_decoder(subject: &Subject<'_>, findings: &mut Findings) -> GraphContract {
    let Subject {
        config,
        manifest,
        decoder: graph,
        ..
    } = *subject;
    findings.start(&graph.name);
    let host = is_host(manifest, &graph.io);
    let paged = manifest.paged.as_ref().map(|group| {
        let expected = paged::Geometry::of_decoder(config, group, host);
        paged::check(&graph.io, &paged::names(&group.layers), &expected, findings)
    });
    let (paged, cache) = paged.unzip();
    let (fixed, types) = fixed::check(&graph.io, &manifest.fixed, host, findings);
    let signature = step::decoder(config, manifest, &graph.io, host, findings);
    let caches = manifest.paged.iter().flat_map(|group| &group.layers);
    let caches = caches.flat_map(|layer| [&layer.key_input, &layer.value_input]);
    let declared = caches.chain(manifest.fixed.iter().map(|tensor| &tensor.input));
    step::refuse_unbound(&graph.io, &signature, declared, findings);
    let state = StateSpec {
        paged,
        fixed,
        captures_in_mixed_steps: manifest.captures_in_mixed_steps,
    };
    wiring::check(&graph.io, &signature, &state, findings);
    GraphContract {
        signature,
        state,
        types: StateTypes {
            cache,
            fixed: types,
        },
        host,
    }
}

fn check_head(
    subject: &Subject<'_>,
    mtp: &Mtp,
    graph: &GraphFile,
    findings: &mut Findings,
) -> GraphContract {
    findings.start(&graph.name);
    let host = is_host(subject.manifest, &graph.io);
    let expected = paged::Geometry::of_head(subject.config, mtp, host);
    let (paged, cache) = paged::check(&graph.io, &paged::head_names(mtp), &expected, findings);
    let signature = step::head(subject.config, mtp, &graph.io, host, findings);
    let caches = paged
        .layers
        .iter()
        .flat_map(|layer| [&layer.key_input, &layer.value_input]);
    step::refuse_unbound(&graph.io, &signature, caches, findings);
    let state = StateSpec {
        paged: Some(paged),
        fixed: Vec::new(),
        captures_in_mixed_steps: true,
    };
    wiring::check(&graph.io, &signature, &state, findings);
    GraphContract {
        signature,
        state,
        types: StateTypes {
            cache: Some(cache),
            fixed: Vec::new(),
        },
        host,
    }
}

/// A graph is for another device when its state is bound by rows, or when it attends with the operator that has no
/// implementation on the host.
fn is_host(manifest: &Manifest, graph: &GraphIo) -> bool {
    let elsewhere = graph
        .operators
        .contains(&("com.microsoft".to_owned(), "PagedAttention".to_owned()));
    !elsewhere
        && manifest
            .fixed
            .iter()
            .all(|tensor| tensor.layout == StateLayout::Bank)
}
