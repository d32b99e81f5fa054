//! The largest settings that a description takes: far above any model there is, they keep a hostile file from asking for
//! absurd amounts of work, and give every later product of two of them room in 64 bits.

/// Layers. A graph has a few hundred nodes and names per layer.
pub const MAX_LAYERS: u64 = 1024;
/// Heads of any kind.
pub const MAX_HEADS: u64 = 4096;
/// Elements of a head.
pub const MAX_HEAD_DIM: u64 = 1 << 12;
/// Elements of a hidden row or of the inside of an MLP.
pub const MAX_WIDTH: u64 = 1 << 24;
/// Tokens of the vocabulary, and positions: ids and positions fit an `i32`.
pub const MAX_TOKENS: u64 = 1 << 31;
/// Tokens that end an answer. Models have up to ten; each is looked for after every token.
pub const MAX_END_TOKENS: usize = 256;
/// Taps of a convolution.
pub const MAX_KERNEL: u64 = 64;
/// The epsilon of a norm: with a larger one a norm no longer norms, and every row becomes the same.
pub const MAX_EPSILON: f32 = 1.0;
