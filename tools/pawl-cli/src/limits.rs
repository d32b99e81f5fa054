//! Every bound of the command line itself, with its reason. Those on models and prompts are in `pawl::manual::limits`.
//!
//! | bound | value | why |
//! |---|---|---|
//! | `TRACE_BYTES` | 64 MiB | a trace of 100,000 tokens with eight drafts each has 50 MB |
//! | `TRACE_PARTS` | 524,288 | rows, tokens and four bars per step; each becomes half a kilobyte in memory before the page is written, and browsers stop at fewer |
//! | `TRACE_LETTERS` | 40 | letters of one token that a page shows, `…` for the rest |
//! | `TRACE_REMARK` | 128 | letters of a reason, which is said of each token again; those that `pawl generate` writes have fewer than 50 |

/// Bytes of a trace that are read.
pub(crate) const TRACE_BYTES: u64 = 64 << 20;
/// Rows, tokens and bars of a trace that is drawn.
pub(crate) const TRACE_PARTS: usize = 1 << 19;
/// Letters of a token that are shown.
pub(crate) const TRACE_LETTERS: usize = 40;
/// Letters of a source or of a reason that are shown.
pub(crate) const TRACE_REMARK: usize = 128;
