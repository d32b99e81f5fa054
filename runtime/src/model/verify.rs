//! Verification of a built model, without running it.

use super::commit;
use super::contract::GraphFile;
use super::graph_io::GraphIo;
use super::load::{open, session_settings};
use super::options::{LoadOptions, Provider};
use super::source::Source;
use super::tensor_spec::DataType;
use crate::error::LoadError;
use crate::exec::{CommitGraphs, Loaded, Session, SessionSettings, Wanted, load};
use crate::state::trial;
use genai_config_schema::{GraphOptimizationLevel, Model, SessionOptions};
use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// Choices of a verification.
///
/// ```
/// use pawl::VerifyOptions;
///
/// assert_eq!(VerifyOptions::new(), VerifyOptions::default());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyOptions {
    /// The ONNX Runtime library; looked up like that of [`LoadOptions`](crate::LoadOptions) when not given.
    pub library: Option<PathBuf>,
}

impl VerifyOptions {
    /// Every choice left to its default.
    ///
    /// ```
    /// assert_eq!(pawl::VerifyOptions::new().library, None);
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the ONNX Runtime library.
    ///
    /// ```
    /// let options = pawl::VerifyOptions::new().library("lib/libonnxruntime.so");
    /// assert!(options.library.is_some());
    /// ```
    #[must_use]
    pub fn library(mut self, path: impl Into<PathBuf>) -> Self {
        self.library = Some(path.into());
        self
    }
}

/// What a verification found.
///
/// ```no_run
/// let report = pawl::verify("demo/tiny-python", &pawl::VerifyOptions::new())?;
/// println!("{report}");
/// assert!(!report.graphs.is_empty());
/// # Ok::<(), pawl::LoadError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Every graph of the model.
    pub graphs: Vec<VerifiedGraph>,
}

/// One graph that agrees with the configuration.
///
/// ```no_run
/// let report = pawl::verify("demo/tiny-python", &pawl::VerifyOptions::new())?;
/// for graph in &report.graphs {
///     println!("{}: {} inputs and outputs", graph.file, graph.tensors);
/// }
/// # Ok::<(), pawl::LoadError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifiedGraph {
    /// File name, as the configuration gives it.
    pub file: String,
    /// Inputs and outputs that were checked.
    pub tensors: usize,
    /// How ONNX Runtime took it.
    pub opened: Opened,
    /// Lengths of kept prefixes for which a commit graph was run on the CPU and left what Pawl's own replay leaves; 0 for
    /// other graphs, and where the CPU has no implementation.
    pub replayed: usize,
}

/// How ONNX Runtime took a graph.
///
/// ```
/// use pawl::Opened;
///
/// let elsewhere = Opened::ElsewhereOnly { operator: "PagedAttention".to_owned() };
/// assert_ne!(elsewhere, Opened::OnCpu);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Opened {
    /// It opened on the CPU.
    OnCpu,
    /// It is for another provider: everything was understood, and the operator named here is the first without an
    /// implementation on the CPU.
    ElsewhereOnly {
        /// Type of the operator.
        operator: String,
    },
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, graph) in self.graphs.iter().enumerate() {
            let newline = if index == 0 { "" } else { "\n" };
            write!(
                f,
                "{newline}{}: {} inputs and outputs agree, ",
                graph.file, graph.tensors
            )?;
            match &graph.opened {
                Opened::OnCpu if graph.replayed > 0 => write!(
                    f,
                    "leaves what the host's replay leaves for {} kept lengths",
                    graph.replayed
                )?,
                Opened::OnCpu => f.write_str("opens in ONNX Runtime")?,
                Opened::ElsewhereOnly { operator } => {
                    write!(
                        f,
                        "understood by ONNX Runtime, which has `{operator}` only on another provider"
                    )?;
                }
            }
        }
        Ok(())
    }
}

/// Checks a built model: its configuration, every graph against it, and that ONNX Runtime opens every graph. A graph
/// for another provider cannot be opened on the CPU; there, ONNX Runtime must understand all of it and miss nothing
/// but an implementation of one of that provider's operators. A commit graph, which consists of ONNX operators, is run on
/// the CPU over made-up transitions, and must leave what Pawl's own replay of them leaves.
///
/// # Errors
/// As [`Model::load`](crate::Model::load), and any other answer of ONNX Runtime.
///
/// ```no_run
/// let report = pawl::verify("models/tiny-python", &pawl::VerifyOptions::new())?;
/// println!("{report}");
/// # Ok::<(), pawl::LoadError>(())
/// ```
pub fn verify(
    folder: impl AsRef<Path>,
    options: &VerifyOptions,
) -> Result<VerifyReport, LoadError> {
    let mut source = Source::read(folder.as_ref())?;
    lighten(&mut source.config.model);
    let loaded = load(Wanted {
        library: options.library.as_deref(),
        ..Wanted::default()
    })?;
    let graphs = match source.contract.decoder.host {
        true => open_all(loaded, &source)?,
        false => refuse_all(loaded, &source)?,
    };
    Ok(VerifyReport { graphs })
}

/// Keeps weights where they are, in the mapped files: verification must not take more memory for a larger model, and
/// ONNX Runtime copies weights when it packs them or folds them into others.
fn lighten(model: &mut Model) {
    let mtp = model.mtp.as_mut().map(|mtp| &mut mtp.session_options);
    for options in [Some(&mut model.decoder.session_options), mtp]
        .into_iter()
        .flatten()
    {
        options.graph_optimization_level = Some(GraphOptimizationLevel::DisableAll);
        let entries = &mut options.config_entries;
        entries.insert("session.disable_prepacking".to_owned(), "1".to_owned());
    }
}

/// Opens every graph as [`Model::load`](crate::Model::load) does, with the weights that they share.
fn open_all(loaded: &Loaded, source: &Source) -> Result<Vec<VerifiedGraph>, LoadError> {
    open(
        loaded,
        source,
        Provider::Cpu,
        &LoadOptions::new().threads(1),
    )?;
    Ok(graphs(source)
        .map(|(graph, _)| verified(graph, Opened::OnCpu))
        .collect())
}

/// Tries to open every graph, and requires the one refusal that a sound graph for another provider gets.
fn refuse_all(loaded: &Loaded, source: &Source) -> Result<Vec<VerifiedGraph>, LoadError> {
    let refused = graphs(source).map(|(graph, options)| {
        let path = source.folder.join(&graph.name);
        let settings = session_settings(&path, Provider::Cpu, options, NonZeroUsize::new(1))?;
        match try_open(loaded, &path, settings, graph)? {
            Tried::Opened(_) => Err(unexpected(&path, "it opens on the CPU")),
            Tried::Missing(operator) => Ok(verified(graph, Opened::ElsewhereOnly { operator })),
        }
    });
    let commits = source.commits.iter();
    let commits = commits.map(|graph| run_commit(loaded, source, graph));
    refused.chain(commits).collect()
}

/// Opens a commit graph, of whose operators the CPU has most in every type, and runs it.
fn run_commit(
    loaded: &Loaded,
    source: &Source,
    graph: &GraphFile,
) -> Result<VerifiedGraph, LoadError> {
    let path = source.folder.join(&graph.name);
    let session = match try_open(loaded, &path, commit::settings(Provider::Cpu), graph)? {
        Tried::Opened(session) => session,
        Tried::Missing(operator) => {
            return Ok(verified(graph, Opened::ElsewhereOnly { operator }));
        }
    };
    let failed = |reason: String| LoadError::Graph {
        path: path.clone(),
        reason: format!("run on the CPU to commit kept prefixes: {reason}"),
    };
    let contracts = &source.contract;
    let contract = contracts.commits.iter().find(|of| of.file == graph.name);
    let served = contract.and_then(|of| Some((of.task, *of.tensors.first()?)));
    let state = served.and_then(|(task, at)| Some((task, contracts.decoder.state.fixed.get(at)?)));
    let (task, state) = state.ok_or_else(|| failed("it serves no state".to_owned()))?;
    let mut graphs = CommitGraphs::new(1);
    graphs
        .add(session, task, &[0])
        .map_err(|error| failed(error.to_string()))?;
    let replayed = trial(&mut graphs, state).map_err(failed)?;
    Ok(VerifiedGraph {
        replayed,
        ..verified(graph, Opened::OnCpu)
    })
}

/// What ONNX Runtime did with a graph.
enum Tried {
    Opened(Session),
    /// The type of the operator that it has no implementation of.
    Missing(String),
}

/// Opens a graph, or finds that nothing but an implementation of one of its operators is missing.
fn try_open(
    loaded: &Loaded,
    path: &Path,
    settings: SessionSettings,
    graph: &GraphFile,
) -> Result<Tried, LoadError> {
    let answer = match Session::open(loaded, path, settings, None) {
        Ok(session) => return Ok(Tried::Opened(session)),
        Err(error) => error.message().trim().to_owned(),
    };
    match missing_operator(&answer, &graph.io) {
        Some(operator) => Ok(Tried::Missing(operator)),
        None => Err(unexpected(path, &answer)),
    }
}

fn graphs(source: &Source) -> impl Iterator<Item = (&GraphFile, &SessionOptions)> {
    let model = &source.config.model;
    let decoder = (&source.decoder, &model.decoder.session_options);
    let head = source.head.as_ref().zip(model.mtp.as_ref());
    let head = head.map(|(graph, mtp)| (graph, &mtp.session_options));
    [Some(decoder), head].into_iter().flatten()
}

fn verified(graph: &GraphFile, opened: Opened) -> VerifiedGraph {
    VerifiedGraph {
        file: graph.name.clone(),
        tensors: graph.io.inputs.len() + graph.io.outputs.len(),
        opened,
        replayed: 0,
    }
}

fn unexpected(path: &Path, answer: &str) -> LoadError {
    LoadError::Graph {
        path: path.to_path_buf(),
        reason: format!(
            "a graph for another provider must be refused on the CPU for want of one of its operators, but: {answer}"
        ),
    }
}

/// The operator of the graph that ONNX Runtime has no implementation for on the CPU, if that is all it misses: one of
/// `com.microsoft`, or, in a bfloat16 graph, an ONNX operator, since the CPU has few of those in that type. ONNX Runtime
/// looks for implementations only after it has understood every node, its types and its shapes.
fn missing_operator(message: &str, graph: &GraphIo) -> Option<String> {
    const PHRASE: &str = "Could not find an implementation for ";
    let (_, rest) = message.split_once(PHRASE)?;
    let name = rest.split('(').next()?;
    let bfloat16 = graph
        .outputs
        .iter()
        .any(|spec| spec.data_type == DataType::BF16);
    let domains: &[&str] = if bfloat16 {
        &["com.microsoft", ""]
    } else {
        &["com.microsoft"]
    };
    domains
        .iter()
        .any(|domain| {
            graph
                .operators
                .contains(&((*domain).to_owned(), name.to_owned()))
        })
        .then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_missing_implementation_is_the_right_refusal() {
        let mut graph = GraphIo::default();
        for (domain, kind) in [
            ("com.microsoft", "PagedAttention"),
            ("", "Gemm"),
            ("pawl", "CausalConv"),
        ] {
            graph.operators.insert((domain.to_owned(), kind.to_owned()));
        }
        let missing = |name: &str| {
            format!("Could not find an implementation for {name}(1) node with name 'n'")
        };
        assert_eq!(
            missing_operator(&missing("PagedAttention"), &graph).as_deref(),
            Some("PagedAttention")
        );
        for wrong in [
            missing("Gemm"),
            missing("CausalConv"),
            missing("GatedDeltaNet"),
            "Fatal error: com.microsoft:PagedAttention(-1) is not a registered function/op"
                .to_owned(),
            String::new(),
        ] {
            assert_eq!(missing_operator(&wrong, &graph), None, "{wrong}");
        }
        graph.outputs.push(crate::model::tensor_spec::TensorSpec {
            name: "logits".to_owned(),
            data_type: DataType::BF16,
            dims: None,
        });
        assert_eq!(
            missing_operator(&missing("Gemm"), &graph).as_deref(),
            Some("Gemm")
        );
        assert_eq!(missing_operator(&missing("CausalConv"), &graph), None);
    }
}
