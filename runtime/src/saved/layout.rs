//! What the states of one model consist of.

use crate::model::spec::{PagedSpec, StateSpec};
use crate::model::{Fingerprint, Model};

/// Names and shapes of everything that a request of one engine keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(super) model: Fingerprint,
    /// Token ids are below this.
    pub(super) vocab: u32,
    /// The most tokens of one request.
    pub(super) most_tokens: usize,
    /// Fixed tensors in manifest order: name and shape of a row.
    pub(super) fixed: Vec<(String, Vec<usize>)>,
    pub(super) cache: Option<CacheLayout>,
    /// The draft head's, where the engine drafts with it.
    pub(super) head: Option<CacheLayout>,
    /// Elements of the decoder's hidden row of one token.
    pub(super) hidden: usize,
}

/// The layers of one cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CacheLayout {
    /// Names of keys and values, in manifest order.
    pub(super) layers: Vec<(String, String)>,
    /// `[kv_heads, head_dim]`.
    pub(super) position: [usize; 2],
}

impl Layout {
    /// What an engine of this model keeps, for requests of up to `most_tokens`; with the head's cache if it `heads`.
    pub(crate) fn of(model: &Model, most_tokens: usize, heads: bool) -> Self {
        let (state, head) = (model.decoder.state(), model.head.as_ref());
        let paged = |state: &StateSpec, kind: &str| {
            let paged = state.paged.as_ref();
            paged.map(|paged| CacheLayout::of(paged, kind))
        };
        let fixed = state.fixed.iter();
        Self {
            model: model.fingerprint,
            vocab: model.config.model.vocab_size,
            most_tokens,
            fixed: fixed
                .map(|fixed| (format!("fixed.{}", fixed.input), fixed.row_shape.clone()))
                .collect(),
            cache: paged(state, "cache"),
            hidden: model.decoder.hidden_size(),
            head: head
                .filter(|_| heads)
                .and_then(|head| paged(head.state(), "head")),
        }
    }

    /// Bytes of the largest file: of a state of the most tokens, with a head as large as the decoder where there may be
    /// one, and room for the header.
    pub(super) fn most_bytes(&self) -> u64 {
        let wide = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let rows = self.fixed.iter().map(|(_, shape)| shape.iter().product());
        let fixed: usize = rows.fold(0, usize::saturating_add);
        let position = |cache: &CacheLayout| {
            let elements: usize = cache.position.iter().product();
            wide(elements).saturating_mul(2 * wide(cache.layers.len()))
        };
        let decoder = self.cache.as_ref().map_or(0, position);
        let head = self.head.as_ref().map_or(decoder, position);
        let elements = decoder.saturating_add(head).saturating_add(1);
        let elements = elements.saturating_add(wide(self.hidden));
        let elements = elements.saturating_mul(wide(self.most_tokens));
        let elements = elements.saturating_add(wide(fixed));
        elements.saturating_mul(4).saturating_add(HEADER)
    }
}

/// Bytes that a header may have.
const HEADER: u64 = 16 << 20;

impl CacheLayout {
    fn of(paged: &PagedSpec, kind: &str) -> Self {
        let layers = paged.layers.iter();
        Self {
            layers: layers
                .map(|layer| {
                    let name = |input: &str| format!("{kind}.{input}");
                    (name(&layer.key_input), name(&layer.value_input))
                })
                .collect(),
            position: [paged.kv_heads, paged.head_dim],
        }
    }

    /// Shape of the keys, or values, of so many positions.
    pub(super) fn shape(&self, tokens: usize) -> Vec<usize> {
        let [heads, dim] = self.position;
        vec![tokens, heads, dim]
    }
}
