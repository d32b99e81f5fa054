//! Handles of the tensors of a graph under construction.

use std::fmt;

use super::ir::{Dim, Dtype};

/// A tensor that the graph already defines: an input, an initializer or the output of a node.
///
/// Handles come from a [`GraphBuilder`](super::GraphBuilder) only, and only that one takes them back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    pub(super) dims: Vec<Dim>,
}

impl Value {
    pub(crate) fn dtype(&self) -> Dtype {
        self.dtype
    }

    pub(crate) fn dims(&self) -> &[Dim] {
        &self.dims
    }
}

/// A value that a node will define.
#[derive(Clone, Debug)]
pub(crate) struct Output<'a> {
    pub(super) suffix: &'a str,
    pub(super) dtype: Dtype,
    pub(super) dims: Vec<Dim>,
}

impl<'a> Output<'a> {
    /// The only or main output, named like its node.
    pub(crate) fn main(dtype: Dtype, dims: impl Into<Vec<Dim>>) -> Self {
        Self::named("", dtype, dims)
    }

    /// One of several outputs, named `<node>.<suffix>`.
    pub(crate) fn named(suffix: &'a str, dtype: Dtype, dims: impl Into<Vec<Dim>>) -> Self {
        Self {
            suffix,
            dtype,
            dims: dims.into(),
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static(extent) => write!(f, "{extent}"),
            Self::Symbol(name) => f.write_str(name),
        }
    }
}

impl From<u64> for Dim {
    fn from(extent: u64) -> Self {
        Self::Static(extent)
    }
}

impl From<&'static str> for Dim {
    fn from(name: &'static str) -> Self {
        Self::Symbol(name)
    }
}

/// `[num_tokens, 96]`, for messages.
pub(super) fn shape_text(dims: &[Dim]) -> String {
    let parts: Vec<String> = dims.iter().map(ToString::to_string).collect();
    format!("[{}]", parts.join(", "))
}
