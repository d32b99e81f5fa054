//! Verification of a built model, without running it.

use super::load::{session_error, session_settings};
use super::options::Provider;
use super::source::Source;
use crate::error::LoadError;
use crate::exec::{Session, Wanted, load};
use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// Choices of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyOptions {
    /// The ONNX Runtime library; looked up like that of [`LoadOptions`](crate::LoadOptions) when not given.
    pub library: Option<PathBuf>,
}

impl VerifyOptions {
    /// Every choice left to its default.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the ONNX Runtime library.
    #[must_use]
    pub fn library(mut self, path: impl Into<PathBuf>) -> Self {
        self.library = Some(path.into());
        self
    }
}

/// What a verification found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Every graph of the model.
    pub graphs: Vec<VerifiedGraph>,
}

/// One graph that agrees with the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifiedGraph {
    /// File name, as the configuration gives it.
    pub file: String,
    /// Inputs and outputs that were checked.
    pub tensors: usize,
    /// How ONNX Runtime took it.
    pub opened: Opened,
}

/// How ONNX Runtime took a graph.
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
/// but an implementation of one of that provider's operators.
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
    let source = Source::read(folder.as_ref())?;
    let loaded = load(Wanted {
        library: options.library.as_deref(),
        ..Wanted::default()
    })?;
    let model = &source.config.model;
    let decoder = (
        &source.decoder,
        &model.decoder.session_options,
        source.contract.decoder.host,
    );
    let head = source.head.as_ref().zip(model.mtp.as_ref());
    let host = source.contract.head.as_ref().is_some_and(|head| head.host);
    let head = head.map(|(graph, mtp)| (graph, &mtp.session_options, host));
    let mut graphs = Vec::new();
    for (graph, session_options, host) in [Some(decoder), head].into_iter().flatten() {
        let path = source.folder.join(&graph.name);
        let settings =
            session_settings(&path, Provider::Cpu, session_options, NonZeroUsize::new(1))?;
        let answer = Session::open(loaded, &path, &settings, None);
        let opened = match (answer, host) {
            (Ok(_), true) => Opened::OnCpu,
            (Ok(_), false) => return Err(unexpected(&path, "it opens on the CPU")),
            (Err(error), true) => return Err(session_error(&path, Provider::Cpu, &error)),
            (Err(error), false) => Opened::ElsewhereOnly {
                operator: missing_operator(error.message(), &graph.io.operators)
                    .ok_or_else(|| unexpected(&path, error.message()))?,
            },
        };
        graphs.push(VerifiedGraph {
            file: graph.name.clone(),
            tensors: graph.io.inputs.len() + graph.io.outputs.len(),
            opened,
        });
    }
    Ok(VerifyReport { graphs })
}

fn unexpected(path: &Path, answer: &str) -> LoadError {
    LoadError::Graph {
        path: path.to_path_buf(),
        reason: format!(
            "a graph for another provider must be refused on the CPU for want of one of its operators, but: {answer}"
        ),
    }
}

/// The `com.microsoft` operator of the graph that ONNX Runtime has no implementation for, if that is all it misses.
fn missing_operator(
    message: &str,
    operators: &std::collections::BTreeSet<(String, String)>,
) -> Option<String> {
    const PHRASE: &str = "Could not find an implementation for ";
    let (_, rest) = message.split_once(PHRASE)?;
    let name = rest.split('(').next()?;
    operators
        .contains(&("com.microsoft".to_owned(), name.to_owned()))
        .then(|| name.to_owned())
}
