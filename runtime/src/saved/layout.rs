//! What the states of one model consist of.

use crate::device::ElementType;
use crate::model::spec::{PagedSpec, StateSpec};
use crate::model::{Fingerprint, Model};
use genai_config_schema::StateOperator;
use safetensors::Dtype;

/// Names and shapes of everything that a request of one engine keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(super) model: Fingerprint,
    /// Token ids are below this.
    pub(super) vocab: u32,
    /// The most tokens of one request.
    pub(super) most_tokens: usize,
    /// Tokens that the key/value cache holds.
    pub(super) room: usize,
    /// Fixed tensors in manifest order.
    pub(super) fixed: Vec<FixedLayout>,
    pub(super) cache: Option<CacheLayout>,
    /// The draft head's, where the engine drafts with it.
    pub(super) head: Option<CacheLayout>,
    /// Elements of the decoder's hidden row of one token.
    pub(super) hidden: usize,
}

/// One fixed tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FixedLayout {
    pub(super) name: String,
    /// Shape of a row.
    pub(super) shape: Vec<usize>,
    pub(super) element: ElementType,
    /// For a history of token ids: the one that stands before the first token.
    pub(super) fresh_id: Option<u32>,
}

impl FixedLayout {
    /// The element type as files name it.
    pub(super) fn dtype(&self) -> Dtype {
        match self.element {
            ElementType::F32 => Dtype::F32,
            ElementType::F16 => Dtype::F16,
            ElementType::Bf16 => Dtype::BF16,
            ElementType::I64 => Dtype::I64,
            ElementType::I32 => Dtype::I32,
            ElementType::I8 => Dtype::I8,
        }
    }

    /// The first element of a history of token ids, little-endian, that is no id below `vocab` nor the fresh one.
    pub(super) fn foreign_id(&self, bytes: &[u8], vocab: u32) -> Option<i64> {
        let fresh = self.fresh_id?;
        let id = |bytes: &[u8]| match *bytes {
            [a, b, c, d] => Some(i64::from(i32::from_le_bytes([a, b, c, d]))),
            [a, b, c, d, e, f, g, h] => Some(i64::from_le_bytes([a, b, c, d, e, f, g, h])),
            _ => None,
        };
        let known = |id: &i64| (0..i64::from(vocab)).contains(id) || *id == i64::from(fresh);
        let ids = bytes.chunks_exact(self.element.size()).filter_map(id);
        ids.into_iter().find(|id| !known(id))
    }

    /// The bytes of a row in the other order of the two, little-endian and the machine's.
    pub(super) fn swapped(&self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        if cfg!(target_endian = "big") {
            let elements = bytes.chunks_exact_mut(self.element.size());
            elements.for_each(<[u8]>::reverse);
        }
        bytes
    }
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
        let cache = paged(state, "cache");
        let pool = (model.limits.kv_blocks).saturating_mul(model.limits.block_size);
        Self {
            model: model.fingerprint,
            vocab: model.config.model.vocab_size,
            most_tokens,
            room: cache.as_ref().map_or(usize::MAX, |_| pool),
            fixed: fixed
                .map(|fixed| FixedLayout {
                    name: format!("fixed.{}", fixed.input),
                    shape: fixed.row_shape.clone(),
                    element: fixed.element,
                    fresh_id: (fixed.operator == StateOperator::TokenHistory)
                        .then_some(fixed.fresh),
                })
                .collect(),
            cache,
            hidden: head.map_or(0, |_| model.decoder.hidden_size()),
            head: head
                .filter(|_| heads)
                .and_then(|head| paged(head.state(), "head")),
        }
    }

    /// Bytes of the largest file with so many tokens, with a head as large as the decoder where there may be one, and room
    /// for the header.
    pub(super) fn most_bytes(&self, tokens: usize) -> u64 {
        let wide = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let row = |fixed: &FixedLayout| {
            let elements: usize = fixed.shape.iter().product();
            elements.saturating_mul(fixed.element.size())
        };
        let fixed = self.fixed.iter().map(row).fold(0, usize::saturating_add);
        let position = |cache: &CacheLayout| {
            let elements: usize = cache.position.iter().product();
            wide(elements).saturating_mul(2 * wide(cache.layers.len()))
        };
        let decoder = self.cache.as_ref().map_or(0, position);
        let head = self.head.as_ref().map_or(decoder, position);
        let elements = decoder.saturating_add(head).saturating_add(1);
        let elements = elements.saturating_add(wide(self.hidden));
        let elements = elements.saturating_mul(wide(tokens));
        let bytes = elements.saturating_mul(4).saturating_add(wide(fixed));
        bytes.saturating_add(HEADER)
    }
}

/// Stands in small histories for what is before a text.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) const FRESH: u32 = 1 << 24;

#[cfg(any(test, feature = "fuzzing"))]
impl Layout {
    /// Of a model of every kind of state.
    pub(crate) fn small() -> Self {
        let fixed = |name: &str, shape: &[usize], element| FixedLayout {
            name: format!("fixed.{name}"),
            shape: shape.to_vec(),
            element,
            // That of a history, outside the vocabulary.
            fresh_id: (element == ElementType::I64).then_some(FRESH),
        };
        let cache = |kind: &str, layers: usize| {
            let name = |layer, part| format!("{kind}.past.{layer}.{part}");
            CacheLayout {
                layers: (0..layers)
                    .map(|layer| (name(layer, "key"), name(layer, "value")))
                    .collect(),
                position: [2, 3],
            }
        };
        Self {
            model: Fingerprint::default(),
            vocab: 50,
            most_tokens: 9,
            room: 9,
            fixed: vec![
                fixed("conv", &[2, 3], ElementType::F32),
                fixed("delta", &[2, 2, 2], ElementType::F32),
                fixed("ids", &[2], ElementType::I64),
            ],
            cache: Some(cache("cache", 2)),
            head: Some(cache("head", 1)),
            hidden: 5,
        }
    }
}

/// Bytes that a header may have.
pub(super) const HEADER: u64 = 16 << 20;

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
