//! What a tensor must look like, and how messages say it.

use super::report::{ContractCode, Findings};
use crate::model::graph_io::GraphIo;
use crate::model::tensor_spec::{DataType, Dim, TensorSpec};
use std::fmt;

/// What one axis must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis<'a> {
    /// Known only at run time, under any symbol; the name is for messages.
    Run(&'a str),
    /// This extent, or one known only at run time.
    Is(u64),
    /// Any fixed extent; the name is for messages.
    Fixed(&'a str),
    /// Anything.
    Any(&'a str),
}

impl Axis<'_> {
    fn admits(self, dim: &Dim) -> bool {
        match self {
            Self::Run(_) => dim.fixed().is_none(),
            Self::Is(extent) => dim.fixed().is_none_or(|found| found == extent),
            Self::Fixed(_) => dim.fixed().is_some_and(|found| found > 0),
            Self::Any(_) => true,
        }
    }
}

/// What a tensor must be; no type means any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern<'a> {
    pub(super) data_type: Option<DataType>,
    pub(super) axes: Vec<Axis<'a>>,
}

impl<'a> Pattern<'a> {
    pub(super) fn new(
        data_type: impl Into<Option<DataType>>,
        axes: impl Into<Vec<Axis<'a>>>,
    ) -> Self {
        Self {
            data_type: data_type.into(),
            axes: axes.into(),
        }
    }

    /// Whether `spec` fits. A tensor without a declared shape fits only where no extent is needed from it.
    pub(super) fn admits(&self, spec: &TensorSpec) -> bool {
        let shape = match &spec.dims {
            Some(dims) => {
                dims.len() == self.axes.len()
                    && self
                        .axes
                        .iter()
                        .zip(dims)
                        .all(|(axis, dim)| axis.admits(dim))
            }
            None => !self.axes.iter().any(|axis| matches!(axis, Axis::Fixed(_))),
        };
        shape && self.data_type.is_none_or(|kind| kind == spec.data_type)
    }

    /// Reports `spec` unless it fits, and says whether it does.
    pub(super) fn require(
        &self,
        spec: &TensorSpec,
        code: ContractCode,
        findings: &mut Findings,
    ) -> bool {
        let fits = self.admits(spec);
        if !fits {
            findings.add(code, &spec.name, self, spec);
        }
        fits
    }
}

impl fmt::Display for Pattern<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(kind) = self.data_type {
            write!(f, "{kind} ")?;
        }
        let axes: Vec<String> = self
            .axes
            .iter()
            .map(|axis| match axis {
                Axis::Run(name) => format!("{name} (not fixed)"),
                Axis::Is(extent) => extent.to_string(),
                Axis::Fixed(name) => format!("{name} (fixed)"),
                Axis::Any(name) => (*name).to_owned(),
            })
            .collect();
        write!(f, "[{}]", axes.join(", "))
    }
}

/// Which side of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Input,
    Output,
}

/// The declared tensor; where it is missing, that is reported under `code`.
pub(super) fn find<'g>(
    graph: &'g GraphIo,
    side: Side,
    name: &str,
    code: ContractCode,
    findings: &mut Findings,
) -> Option<&'g TensorSpec> {
    let (found, expected) = match side {
        Side::Input => (graph.input(name), "an input of the graph"),
        Side::Output => (graph.output(name), "an output of the graph"),
    };
    if found.is_none() {
        findings.add(code, name, expected, "missing");
    }
    found
}

/// Reports a state whose output differs from its input.
pub(super) fn require_same(input: &TensorSpec, output: &TensorSpec, findings: &mut Findings) {
    let same_shape = match (&input.dims, &output.dims) {
        (Some(a), Some(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.agrees(b)),
        _ => true,
    };
    if input.data_type != output.data_type || !same_shape {
        findings.add(
            ContractCode::M2,
            &output.name,
            format!("{input}, as its input"),
            output,
        );
    }
}
