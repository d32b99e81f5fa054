//! What the cases share: fixtures, goldens, exports and comparisons.

#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "a damaged fixture may stop the case that reads it, and an excuse is printed"
)]

pub mod compare;
pub mod export;
pub mod golden;
pub mod random;
pub mod steps;

use std::path::{Path, PathBuf};

/// Fixture checkpoints with recorded results, by folder name under `tests/fixtures`.
pub const GOLDEN_NAMES: [&str; 8] = [
    "qwen3_5-odd",
    "lfm2-odd",
    "llama-odd",
    "qwen3-odd",
    "llama-rope-linear",
    "llama-rope-llama3",
    "llama-rope-yarn",
    "tiny-python",
];

/// The folder of a fixture.
#[must_use]
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .join(name)
}

/// The folder of a fixture's checkpoint. The shipped checkpoint lives with the product, not with the tests.
#[must_use]
pub fn checkpoint(name: &str) -> PathBuf {
    match name {
        "tiny-python" => workspace().join("models/checkpoints/tiny-python"),
        _ => fixture(name),
    }
}

/// How many times as many random scripts are to run as usually: what `PAWL_TEST_EFFORT` says, or 1.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "tests are told by their environment how long to run"
)]
pub fn effort() -> u64 {
    let effort = std::env::var("PAWL_TEST_EFFORT").ok();
    effort.and_then(|effort| effort.parse().ok()).unwrap_or(1)
}

/// The workspace root.
#[must_use]
pub fn workspace() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_path_buf()
}
