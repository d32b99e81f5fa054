//! Every bound of the command line itself, with its reason. Those on models and prompts are in `pawl::manual::limits`.
//!
//! | bound | value | why |
//! |---|---|---|
//! | `TRACE_BYTES` | 64 MiB | a trace of 100,000 tokens with eight drafts each has 50 MB |
//! | `TRACE_PARTS` | 524,288 | rows, tokens and four bars per step; each becomes half a kilobyte in memory before the page is written, and browsers stop at fewer |
//! | `TRACE_LETTERS` | 40 | letters of one token, or of what is said of it, that a page shows |

/// Bytes of a trace that are read.
pub(crate) const TRACE_BYTES: u64 = 64 << 20;
/// Rows, tokens and bars of a trace that is drawn.
pub(crate) const TRACE_PARTS: usize = 1 << 19;
/// Letters of a token, or of a remark, that are shown.
pub(crate) const TRACE_LETTERS: usize = 40;
