//! Checks of one node's arguments while it is emitted.

use std::borrow::Cow;

use super::ir::{Dim, Dtype};
use super::value::{Value, shape_text};
use crate::error::BuildError;

/// Where a check happens: the file and the node that is about to be emitted.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    pub(super) file: Cow<'static, str>,
    pub(super) node: String,
}

impl Check {
    /// The defect of an argument that is not what the operator takes.
    pub(crate) fn defect(&self, argument: &str, expected: &str, found: &str) -> BuildError {
        let problem = format!("{argument}: expected {expected}, found {found}");
        BuildError::defect(&self.file, &self.node, problem)
    }

    /// Requires an element type.
    pub(crate) fn dtype(
        &self,
        argument: &str,
        value: &Value,
        dtype: Dtype,
    ) -> Result<(), BuildError> {
        if value.dtype == dtype {
            return Ok(());
        }
        let (expected, found) = (format!("{dtype:?}"), format!("{:?}", value.dtype));
        Err(self.defect(argument, &expected, &found))
    }

    /// Requires an element type and a shape.
    pub(crate) fn tensor(
        &self,
        argument: &str,
        value: &Value,
        dtype: Dtype,
        dims: &[Dim],
    ) -> Result<(), BuildError> {
        self.dtype(argument, value, dtype)?;
        if value.dims == dims {
            return Ok(());
        }
        Err(self.defect(argument, &shape_text(dims), &shape_text(&value.dims)))
    }

    /// Requires a rank and takes the shape apart.
    pub(crate) fn rank<const N: usize>(
        &self,
        argument: &str,
        value: &Value,
    ) -> Result<[Dim; N], BuildError> {
        <[Dim; N]>::try_from(value.dims.as_slice()).map_err(|_| {
            self.defect(
                argument,
                &format!("rank {N}"),
                &format!("shape {}", shape_text(&value.dims)),
            )
        })
    }

    /// Requires rows of a static width: `[rows, width]`.
    pub(crate) fn rows(&self, argument: &str, value: &Value) -> Result<(Dim, u64), BuildError> {
        let [rows, width] = self.rank(argument, value)?;
        Ok((rows, self.extent(argument, width)?))
    }

    /// Requires a dimension known when the graph is built.
    pub(crate) fn extent(&self, argument: &str, dim: Dim) -> Result<u64, BuildError> {
        match dim {
            Dim::Static(extent) => Ok(extent),
            Dim::Symbol(name) => Err(self.defect(argument, "a static extent", name)),
        }
    }

    /// Requires two numbers of the shapes to agree.
    pub(crate) fn equal(
        &self,
        argument: &str,
        expected: impl Into<Dim>,
        found: impl Into<Dim>,
    ) -> Result<(), BuildError> {
        let (expected, found) = (expected.into(), found.into());
        if expected == found {
            return Ok(());
        }
        Err(self.defect(argument, &expected.to_string(), &found.to_string()))
    }

    /// An extent or count as operators take it.
    pub(crate) fn integer(&self, argument: &str, value: u64) -> Result<i64, BuildError> {
        i64::try_from(value)
            .map_err(|_| self.defect(argument, "at most 2^63 - 1", &value.to_string()))
    }
}
