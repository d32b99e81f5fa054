//! Transitions of Gated DeltaNet: decay, key and delta of a token, applied with the arithmetic of the operator.

use super::{row_elements, wrong, wrong_row};
use crate::kernels::{Decay, Heads, Replay};
use crate::model::spec::FixedSpec;
use crate::state::PoolError;
use genai_config_schema::StateDecay;

/// A state `[values, value_dim, key_dim]`, and what it decays by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::state) struct Delta {
    heads: Heads,
    decay: Decay,
}

impl Delta {
    pub(super) fn of(spec: &FixedSpec) -> Result<Self, PoolError> {
        let shape = || wrong_row(spec, "[value heads, value dim, key dim]");
        let row = row_elements(spec)?;
        let &[values, value_dim, key_dim] = spec.row_shape.as_slice() else {
            return Err(shape());
        };
        let keys = spec.key_heads.unwrap_or(0);
        if keys == 0 || values % keys != 0 {
            let expected = format!("a divisor of {values}");
            return Err(wrong(spec, "key heads", expected, keys));
        }
        // The three parts of a transition are each no larger than the state.
        row.checked_mul(3).ok_or_else(shape)?;
        Ok(Self {
            heads: Heads {
                keys,
                values,
                key_dim,
                value_dim,
            },
            decay: match spec.decay {
                StateDecay::PerHead => Decay::PerHead,
                StateDecay::PerKey => Decay::PerKey,
            },
        })
    }

    pub(super) fn width(self) -> usize {
        self.heads.transition_of(self.decay).width()
    }

    pub(super) fn replay(self) -> Replay {
        Replay::Delta(self.heads, self.decay)
    }
}
