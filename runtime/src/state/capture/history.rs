//! A history of token ids: small enough that each slot is all of it, as it is after a token. Aligned left.

use super::{row_elements, wrong_row};
use crate::model::spec::FixedSpec;
use crate::state::PoolError;

/// So many token ids, the latest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::state) struct History {
    tokens: usize,
}

impl History {
    pub(super) fn of(spec: &FixedSpec) -> Result<Self, PoolError> {
        let tokens = row_elements(spec)?;
        match spec.row_shape.len() {
            1 => Ok(Self { tokens }),
            _ => Err(wrong_row(spec, "[tokens]")),
        }
    }

    pub(super) fn width(self) -> usize {
        self.tokens
    }
}
