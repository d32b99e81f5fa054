//! Names and the checksum.

use safetensors::Dtype;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// The file's `format`.
pub(super) const FORMAT: &str = "pawl-state";
/// The file's `version`: raised by every change after which older files would be misunderstood.
pub(super) const VERSION: &str = "1";
/// Keys of the metadata.
pub(super) const KEYS: [&str; 4] = ["format", "version", "model", "sha256"];
/// The tensor of token ids.
pub(super) const TOKENS: &str = "tokens";

/// The tensor of hidden rows that the draft head has not read.
pub(super) const UNREAD: &str = "head_unread";

/// Name, type, shape and little-endian bytes of one tensor.
#[derive(Clone, Debug)]
pub(super) struct Entry<B> {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    pub(super) bytes: B,
}

/// SHA-256, in lower-case hexadecimal, of the metadata but for the checksum, and of the tensors, both by name.
pub(super) fn checksum<B: AsRef<[u8]>>(
    metadata: &BTreeMap<String, String>,
    mut entries: Vec<&Entry<B>>,
) -> String {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    for (key, value) in metadata.iter().filter(|(key, _)| *key != "sha256") {
        part(key.as_bytes());
        part(value.as_bytes());
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in entries {
        part(entry.name.as_bytes());
        part(format!("{:?} {:?}", entry.dtype, entry.shape).as_bytes());
        part(entry.bytes.as_ref());
    }
    hex(&hash.finalize())
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
