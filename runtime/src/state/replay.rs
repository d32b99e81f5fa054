//! Host replay of captured transitions. Pure: slices in, slices out.
//!
//! Every function works in place on a copy of the state before the step, in the order of operations of the
//! operator's recurrent path, and reads exactly the transitions it is given.

/// Geometry of a Gated DeltaNet state `[value_heads, value_dim, key_dim]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeltaDims {
    /// `Hv`, a multiple of `key_heads`.
    pub(crate) value_heads: usize,
    /// `Hk`.
    pub(crate) key_heads: usize,
    /// `Dv`.
    pub(crate) value_dim: usize,
    /// `Dk`.
    pub(crate) key_dim: usize,
}

impl DeltaDims {
    /// Elements of one transition, decay `Hv` then key `Hk * Dk` then delta `Hv * Dv`; `None` on overflow.
    pub(crate) fn width(self) -> Option<usize> {
        let key = self.key_heads.checked_mul(self.key_dim)?;
        let delta = self.value_heads.checked_mul(self.value_dim)?;
        self.value_heads.checked_add(key)?.checked_add(delta)
    }

    /// Elements of one state row; `None` on overflow.
    pub(crate) fn state(self) -> Option<usize> {
        self.value_heads
            .checked_mul(self.value_dim)?
            .checked_mul(self.key_dim)
    }

    /// Splits one transition of the bank layout; `None` for another width.
    pub(crate) fn split(self, transition: &[f32]) -> Option<DeltaTransition<'_>> {
        if self.width() != Some(transition.len()) {
            return None;
        }
        let (decay, rest) = transition.split_at_checked(self.value_heads)?;
        let (key, delta) = rest.split_at_checked(self.key_heads * self.key_dim)?;
        Some(DeltaTransition { decay, key, delta })
    }
}

/// What one token did to a Gated DeltaNet state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeltaTransition<'a> {
    /// `[Hv]`, already exponentiated.
    pub(crate) decay: &'a [f32],
    /// `[Hk, Dk]`, normalised.
    pub(crate) key: &'a [f32],
    /// `[Hv, Dv]`.
    pub(crate) delta: &'a [f32],
}

/// Applies one transition: `s = s * decay; s += key * delta` for every element `(h, v, i)`.
///
/// Value head `h` uses key head `h * Hk / Hv`. Slices of other lengths than `dims` says leave the rest untouched;
/// callers get them from [`DeltaDims::split`].
pub(crate) fn replay_delta(state: &mut [f32], dims: DeltaDims, transition: DeltaTransition<'_>) {
    let head_state = dims.value_dim * dims.key_dim;
    if head_state == 0 {
        return;
    }
    let heads = state.chunks_exact_mut(head_state).zip(transition.decay);
    let deltas = transition.delta.chunks_exact(dims.value_dim);
    for (head, ((state, decay), delta)) in heads.zip(deltas).enumerate() {
        let key_head = head * dims.key_heads / dims.value_heads;
        let start = key_head * dims.key_dim;
        let Some(key) = transition.key.get(start..start + dims.key_dim) else {
            return;
        };
        for (row, delta) in state.chunks_exact_mut(dims.key_dim).zip(delta) {
            for (s, key) in row.iter_mut().zip(key) {
                *s *= decay;
                *s += key * delta;
            }
        }
    }
}

/// Appends one input value per channel to a convolution state `[C, history]`, oldest first: a bit copy.
pub(crate) fn replay_conv(state: &mut [f32], history: usize, values: &[f32]) {
    if history == 0 {
        return;
    }
    for (channel, value) in state.chunks_exact_mut(history).zip(values) {
        channel.copy_within(1.., 0);
        if let Some(last) = channel.last_mut() {
            *last = *value;
        }
    }
}
