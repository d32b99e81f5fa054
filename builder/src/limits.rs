//! Every bound on what a checkpoint may ask of an export, with its reason. Those on single settings (layers, heads,
//! widths) are in `pawl_models::limits`.
//!
//! | bound | value | why |
//! |---|---|---|
//! | `SETTINGS_BYTES` | 4 MiB | `config.json` and its like take ten times their size in memory; real ones have some KB |
//! | `INDEX_BYTES` | 32 MiB | the index of a model of 100,000 tensors has 10 MB |
//! | `HEADER_BYTES` | 100,000,000 | what the safetensors format allows a file; here all files of a checkpoint together |
//! | `TENSORS` | 262,144 | a tensor takes some 300 bytes in memory; the largest models have 100,000 |
//! | `NAME_BYTES` | 1024 | names of tensors are a tenth of it, and messages quote them |
//! | `TENSOR_AXES` | 32 | a list of extents is kept before it is checked |
//! | `COMPANION_BYTES` | 256 MiB | tokenizer files are copied; the largest have 40 MB, a sparse file could have 1 TiB |
//! | `TABLE_BYTES` | 256 MiB | tables of positions are made in memory; a million positions of 128 elements in 16 bits take all of it |

/// Bytes of a settings file.
pub(crate) const SETTINGS_BYTES: u64 = 4 << 20;
/// Bytes of the index of a sharded checkpoint.
pub(crate) const INDEX_BYTES: u64 = 32 << 20;
/// Bytes of the headers of all safetensors files together.
pub(crate) const HEADER_BYTES: u64 = 100_000_000;
/// Tensors of a checkpoint.
pub(crate) const TENSORS: usize = 1 << 18;
/// Bytes of the name of a tensor.
pub(crate) const NAME_BYTES: usize = 1 << 10;
/// Axes of a tensor.
pub(crate) const TENSOR_AXES: usize = 32;
/// Bytes of a file that is copied along.
pub(crate) const COMPANION_BYTES: u64 = 256 << 20;
/// Bytes of the cosines and sines of one kind of rotary positions.
pub(crate) const TABLE_BYTES: u64 = 256 << 20;
