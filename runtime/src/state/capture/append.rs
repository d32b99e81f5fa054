//! Transitions of a convolution: the input value of every channel. The state is the samples that are looked back on, so
//! that replaying moves values and computes none.

use super::{row_elements, wrong_row};
use crate::kernels::Replay;
use crate::model::spec::FixedSpec;
use crate::state::PoolError;

/// A state `[channels, history]`, oldest sample first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::state) struct Append {
    channels: usize,
    history: usize,
}

impl Append {
    pub(super) fn of(spec: &FixedSpec) -> Result<Self, PoolError> {
        row_elements(spec)?;
        match *spec.row_shape.as_slice() {
            [channels, history] => Ok(Self { channels, history }),
            _ => Err(wrong_row(spec, "[channels, history]")),
        }
    }

    pub(super) fn width(self) -> usize {
        self.channels
    }

    pub(super) fn replay(self) -> Replay {
        let Self { channels, history } = self;
        Replay::Append { channels, history }
    }
}
