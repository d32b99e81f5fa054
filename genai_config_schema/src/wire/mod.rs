//! The structs of the file, key for key.
//!
//! Every struct is what one JSON object holds: a public field per key, `None` or empty where the
//! key is absent. Reading them through serde alone checks types only; [`GenaiConfig::from_json`]
//! checks everything.
#![allow(
    clippy::exhaustive_structs,
    clippy::exhaustive_enums,
    reason = "these types are the file format: exporters build them literally"
)]

mod codec;
mod decoder;
mod drafters;
mod model;
mod serving;
mod session;
mod state_group;

use std::collections::BTreeMap;

pub use decoder::{Decoder, DecoderInputs, DecoderOutputs, SharedInitializer, SlidingWindow};
pub use drafters::{
    BlockDrafter, BlockDrafterInputs, BlockDrafterOutputs, Mtp, MtpInputs, MtpOutputs,
    SampledProposal,
};
pub use model::{GenaiConfig, Model};
pub use serving::{DynamicBatching, Engine, Search, Speculative, StaticBatching};
pub use session::{
    DeviceFilteringOptions, GraphOptimizationLevel, ProviderOptions, RunOptions, SessionOptions,
};
pub use state_group::{Binding, Bindings, StateGroup, StateKind, StateUpdate};

/// Says whether a field is left out of the file.
trait Omit {
    /// True when writing nothing reads back as the same value.
    fn omit(&self) -> bool {
        false
    }
}

impl Omit for u32 {}
impl Omit for u64 {}
impl Omit for i32 {}
impl Omit for String {}
impl Omit for Model {}
impl Omit for Decoder {}
impl Omit for StateKind {}

impl<T> Omit for Option<T> {
    fn omit(&self) -> bool {
        self.is_none()
    }
}

impl<T> Omit for Vec<T> {
    fn omit(&self) -> bool {
        self.is_empty()
    }
}

impl<K, V> Omit for BTreeMap<K, V> {
    fn omit(&self) -> bool {
        self.is_empty()
    }
}

/// Sections that are left out when every key in them is.
macro_rules! omit_when_default {
    ($($section:ty),* $(,)?) => {$(
        impl Omit for $section {
            fn omit(&self) -> bool {
                *self == Self::default()
            }
        }
    )*};
}

omit_when_default!(
    BlockDrafterInputs,
    BlockDrafterOutputs,
    DecoderInputs,
    DecoderOutputs,
    Engine,
    MtpInputs,
    MtpOutputs,
    RunOptions,
    Search,
    SessionOptions,
    Speculative,
);

/// Defines one object of the file: absent keys read as the default and are not written.
macro_rules! wire {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[$field_meta:meta])* pub $field:ident: $ty:ty, )*
        }
    )*) => {$(
        #[derive(
            Clone, Debug, Default, PartialEq,
            serde::Serialize, serde::Deserialize, schemars::JsonSchema,
        )]
        #[serde(default, deny_unknown_fields)]
        $(#[$meta])*
        pub struct $name {
            $(
                $(#[$field_meta])*
                #[serde(skip_serializing_if = "crate::wire::Omit::omit")]
                pub $field: $ty,
            )*
        }
    )*};
}
use wire;
