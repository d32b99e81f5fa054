//! A series of states: each slot is the full state after a token. Its alignment says which token's.

use super::row_elements;
use crate::model::spec::FixedSpec;
use crate::state::PoolError;

/// States of so many elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::state) struct Dense {
    row: usize,
}

impl Dense {
    pub(super) fn of(spec: &FixedSpec) -> Result<Self, PoolError> {
        let row = row_elements(spec)?;
        Ok(Self { row })
    }

    pub(super) fn width(self) -> usize {
        self.row
    }
}
