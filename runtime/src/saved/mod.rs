//! States of requests in files.
//!
//! A file is in the safetensors format: `tokens` (uint32), one float32 tensor per fixed state (`fixed.NAME`, a row of the
//! bank) and two per attention layer (`cache.NAME`, `[tokens, kv_heads, head_dim]`, in the order of positions; `head.NAME`
//! for a draft head, which may be behind), where `NAME` is the graph's name of the input. Its metadata holds `format`,
//! `version`, `model` (a [`Fingerprint`](crate::model::Fingerprint)) and `sha256`, a checksum over everything else: it
//! finds damage, not malice.

mod error;
mod format;
mod layout;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use error::StateFileError;
pub(crate) use layout::Layout;
pub(crate) use read::read;
pub(crate) use write::write;
